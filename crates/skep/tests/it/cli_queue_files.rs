//! `skep export` and `skep import`: queues as files.

use crate::cli_queues::Place;

#[test]
fn a_queue_goes_through_a_file_and_back_as_it_was() {
    let place = Place::new();
    for number in 1..=250 {
        let partition = format!("p-{}", number % 3);
        let lines = format!("{{\"n\": {number}.0}}\n");
        let id = format!("load-{number}");
        let flags = ["push", "from", "--lines", "--partition", &partition, "--transaction-id", &id];
        assert_eq!(place.feed(&flags, &lines).code, Some(0));
    }
    let said = place.skep(&["export", "from", "-o", "all.jsonl"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.text.contains("250 messages of from"), "{said:?}");
    let text = std::fs::read_to_string(place.folder.join("all.jsonl")).expect("reads");
    assert_eq!(text.lines().count(), 250, "the last line is not part of it");
    let streamed = place.skep(&["export", "from"]);
    assert_eq!(streamed.text, text, "the same on standard output");
    assert!(streamed.beside.contains("250 messages"), "{streamed:?}");
    let one = place.skep(&["export", "from", "--partition", "p-1", "--from", "1h"]);
    assert!(one.text.lines().count() > 80 && one.text.lines().all(|line| line.contains("p-1")));

    let first = place.skep(&["import", "to", "all.jsonl"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.text.contains("250 queued, 0 duplicates"), "{first:?}");
    let again = place.json(&["import", "to", "all.jsonl"]);
    assert_eq!((&again["queued"], &again["duplicates"]), (&0.into(), &250.into()));
    let both = ["from", "to"].map(|queue| {
        let popped = ["p-0", "p-1", "p-2"].map(|partition| {
            let flags = ["--partition", partition, "--batch", "1000", "--payload-only"];
            place.skep(&[&["pop", queue], &flags[..]].concat()).text
        });
        assert!(popped.iter().all(|text| !text.is_empty()), "{popped:?}");
        popped
    });
    assert_eq!(both[0], both[1], "the same in the same order, byte for byte");
}

#[test]
fn priorities_go_through_a_file_too() {
    let place = Place::new();
    for (payload, priority) in [("1", "0"), ("2", "7")] {
        let pushed = place.skep(&["push", "from", payload, "--priority", priority]);
        assert_eq!(pushed.code, Some(0), "{pushed:?}");
    }
    let said = place.skep(&["export", "from", "-o", "all.jsonl"]);
    assert!(said.text.contains("2 messages"), "none is left out: {said:?}");
    assert_eq!(place.skep(&["import", "to", "all.jsonl"]).code, Some(0));
    let popped = ["pop", "to", "--payload-only", "--ack"];
    assert_eq!(place.skep(&popped).text, "2\n", "the higher one first");
    assert_eq!(place.skep(&popped).text, "1\n");
}

#[test]
fn an_import_ends_at_a_wrong_line_and_goes_on_after_it() {
    let place = Place::new();
    let line = |number: u32| format!("{{\"transactionId\":\"t-{number}\",\"payload\":{number}}}\n");
    let good: String = (1..=150).map(line).collect();
    let rest: String = (152..=160).map(line).collect();
    let text = format!("{good}{{\"payload\":}}\n{rest}");
    std::fs::write(place.folder.join("load.jsonl"), &text).expect("writes");
    let wrong = place.skep(&["import", "q", "load.jsonl"]);
    assert_eq!(wrong.code, Some(65), "{wrong:?}");
    assert!(wrong.beside.contains("line 151:"), "{wrong:?}");
    assert!(wrong.beside.contains("--skip 150"), "{wrong:?}");
    assert!(wrong.text.contains("150 queued"), "{wrong:?}");
    let popped = place.skep(&["pop", "q", "--batch", "1000", "--ack", "--payload-only"]);
    assert_eq!(popped.text.lines().count(), 150, "nothing after it was sent");

    let text = format!("{good}{}{rest}", line(151));
    let mended = place.feed(&["import", "q", "-", "--skip", "150"], &text);
    assert!(mended.text.contains("10 queued, 0 duplicates"), "{mended:?}");
    let popped = place.skep(&["pop", "q", "--batch", "1000", "--payload-only"]);
    let expected: String = (151..=160).map(|number| format!("{number}\n")).collect();
    assert_eq!(popped.text, expected);
}

#[test]
fn an_export_of_nothing_known_leaves_no_file() {
    let place = Place::new();
    let unknown = place.skep(&["export", "nothing", "-o", "nothing.jsonl"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.beside.contains("E_QUEUE_UNKNOWN"), "{unknown:?}");
    assert!(!place.folder.join("nothing.jsonl").exists());
    let missing = place.skep(&["import", "q", "nothing.jsonl"]);
    assert_eq!(missing.code, Some(64), "{missing:?}");
    assert!(missing.beside.contains("nothing.jsonl cannot be read"), "{missing:?}");
}
