// Everything that a page can make a browser send to a node, one after the other. What the page saw
// of each comes back by its name.
async (node, gateway) => {
  const pop = `${node}/api/v1/pop/queue/orders?autoAck=true`;
  const push = `${node}/api/v1/push`;
  const message = JSON.stringify({ items: [{ queue: "planted", payload: 1 }] });
  const saw = {};

  const element = (name, tag, fields) => new Promise((done) => {
    const one = Object.assign(document.createElement(tag), fields);
    one.onload = () => done("loaded");
    one.onerror = () => done("refused");
    document.body.append(one);
  }).then((outcome) => (saw[name] = outcome));

  // A form whose answer goes to a frame. Its one field makes a body that is JSON if nobody looks
  // at the type.
  const form = (name, method, action, enctype, field, value) => new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.name = `answer-${name}`;
    document.body.append(frame);
    const one = Object.assign(document.createElement("form"), { method, action, enctype });
    one.target = frame.name;
    one.append(Object.assign(document.createElement("input"), { name: field, value }));
    document.body.append(one);
    frame.onload = () => {
      let text = null;
      try { text = frame.contentDocument.body.innerText; } catch { text = null; }
      done(text === null ? "unreadable" : text);
    };
    one.submit();
  }).then((outcome) => (saw[name] = outcome));

  const ask = async (name, url, options) => {
    try {
      const answer = await fetch(url, options);
      saw[name] = answer.type === "opaque" ? "opaque" : `${answer.status} ${await answer.text()}`;
    } catch { saw[name] = "refused"; }
  };

  await element("image", "img", { src: pop });
  await element("script", "script", { src: pop });
  await element("style", "link", { rel: "stylesheet", href: pop });
  await element("frame of a pop", "iframe", { src: pop });
  await element("frame of the dashboard", "iframe", { src: `${node}/#/keys` });
  await element("frame of the live events", "iframe", { src: `${node}/api/v1/live` });

  await form("form get", "get", `${node}/api/v1/pop/queue/orders`, "", "autoAck", "true");
  const head = `${message.slice(0, -1)},"x":"`;
  for (const kind of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
    await form(`form ${kind}`, "post", push, kind, head, '"}');
  }
  const log_in = '{"key":"skep_attacker","x":"';
  await form("form login", "post", `${node}/api/v1/session`, "text/plain", log_in, '"}');

  for (const credentials of ["include", "omit"]) {
    for (const mode of ["no-cors", "cors"]) {
      const how = { mode, credentials };
      await ask(`${mode} ${credentials} pop`, pop, how);
      await ask(`${mode} ${credentials} keys`, `${node}/api/v1/keys`, how);
      await ask(`${mode} ${credentials} push`, push, { ...how, method: "POST", body: message });
    }
    const how = { mode: "cors", credentials, headers: { "content-type": "application/json" } };
    await ask(`json ${credentials}`, push, { ...how, method: "POST", body: message });
    await ask(`delete ${credentials}`, `${node}/api/v1/resources/queues/orders`, {
      ...how, method: "DELETE",
    });
  }
  for (const type of ["text/plain", "application/json"]) {
    navigator.sendBeacon(push, new Blob([message], { type }));
  }

  for (const withCredentials of [true, false]) {
    saw[`events ${withCredentials}`] = await new Promise((done) => {
      const events = new EventSource(`${node}/api/v1/live`, { withCredentials });
      const end = (outcome) => { events.close(); done(outcome); };
      events.onopen = () => end("open");
      events.onerror = () => end("refused");
    });
  }
  for (const url of [`ws://${gateway}/`, `${node.replace("http", "ws")}/api/v1/live`]) {
    saw[`socket ${url}`] = await new Promise((done) => {
      const socket = new WebSocket(url);
      socket.onopen = () => { socket.close(); done("open"); };
      socket.onerror = () => done("refused");
    });
  }
  return saw;
}
