//! Tests of certificates, with real files and real handshakes.

use super::*;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConnection};
use skep_testkit::certificates::{Authority, Certificate};
use std::path::Path;
use tempfile::TempDir;

const DAY_MS: i64 = 86_400_000;

struct Scene {
    folder: TempDir,
    authority: Authority,
}

impl Scene {
    fn new() -> Self {
        Scene { folder: tempfile::tempdir().expect("a folder"), authority: Authority::new() }
    }

    fn files(&self, name: &str) -> PairFiles {
        let path = |ending: &str| self.folder.path().join(format!("{name}.{ending}"));
        PairFiles { certificate: path("pem"), key: path("key") }
    }

    fn install(&self, name: &str, signed: &Certificate) {
        let files = self.files(name);
        put(&files.certificate, &signed.certificate);
        put(&files.key, &signed.key);
    }

    /// A certificate for `made_for`, kept under that name, that `host` shall have.
    fn wanted(&self, host: &str, made_for: &str) -> HostCertificate {
        self.install(made_for, &self.authority.sign(made_for, 100));
        HostCertificate { host: host.to_owned(), files: self.files(made_for) }
    }

    /// Somebody who trusts the authority and remembers handshakes.
    fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).expect("PEM");
        roots.add(root).expect("is a certificate");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("has versions");
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }
}

/// Replaced as careful people do, so that another file is seen whatever the clock says.
fn put(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).expect("writes");
    std::fs::rename(&beside, path).expect("renames");
}

/// A whole handshake; the certificate that the server showed, and how it went.
fn shake(
    certificates: &Certificates,
    client: &Arc<ClientConfig>,
    host: &str,
) -> Result<(CertificateDer<'static>, HandshakeKind), rustls::Error> {
    let name = host.to_owned().try_into().expect("is a name");
    let mut client = ClientConnection::new(client.clone(), name)?;
    let mut server = ServerConnection::new(certificates.config().expect("has some"))?;
    for _ in 0..8 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).expect("writes");
        }
        server.read_tls(&mut bytes.as_slice()).expect("reads");
        let served = server.process_new_packets();
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).expect("writes");
        }
        client.read_tls(&mut bytes.as_slice()).expect("reads");
        client.process_new_packets()?;
        served?;
    }
    assert_eq!(client.alpn_protocol(), Some(&b"h2"[..]));
    let shown = client.peer_certificates().expect("one was shown")[0].clone().into_owned();
    Ok((shown, client.handshake_kind().expect("is over")))
}

fn first_in(files: &PairFiles) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(&files.certificate).expect("PEM")
}

#[test]
fn the_host_that_is_asked_for_decides() {
    let scene = Scene::new();
    let wanted = [
        scene.wanted("shop.my.example", "shop.my.example"),
        scene.wanted("*.my.example", "*.my.example"),
        scene.wanted("*.deep.my.example", "*.deep.my.example"),
    ];
    let certificates = Certificates::load(&wanted).expect("all are good");
    let client = scene.client();
    for (host, file) in [
        ("shop.my.example", "shop.my.example"),
        ("SHOP.my.example", "shop.my.example"),
        ("other.my.example", "*.my.example"),
        ("a.deep.my.example", "*.deep.my.example"),
    ] {
        let (shown, _) = shake(&certificates, &client, host).expect(host);
        assert_eq!(shown, first_in(&scene.files(file)), "{host}");
    }
    // Nearer than `*.my.example`, though the client will not believe it for two labels.
    let table = certificates.chosen.0.load();
    let key_of = |host| table.choose(Some(host)).map(Arc::as_ptr);
    assert_eq!(key_of("a.b.deep.my.example"), key_of("a.deep.my.example"));
    assert_eq!(key_of("a.b.my.example"), key_of("other.my.example"));
    assert_eq!(key_of("shop.my.example."), key_of("shop.my.example"));
    assert_eq!(key_of("my.example"), None);
}

#[test]
fn a_host_without_a_certificate_gets_no_handshake_unless_there_is_one_for_all() {
    let scene = Scene::new();
    let mut wanted = vec![scene.wanted("shop.example", "shop.example")];
    let certificates = Certificates::load(&wanted).expect("is good");
    let client = scene.client();
    let refused = shake(&certificates, &client, "else.test").expect_err("there is none");
    assert!(matches!(refused, rustls::Error::AlertReceived(_)), "{refused:?}");
    wanted.push(scene.wanted("*", "else.test"));
    assert_eq!(certificates.replace(&wanted), []);
    let (shown, _) = shake(&certificates, &client, "else.test").expect("there is one");
    assert_eq!(shown, first_in(&scene.files("else.test")));
    assert!(certificates.chosen.0.load().choose(None).is_some());
    assert_eq!(certificates.replace(&[]), []);
    assert!(certificates.config().is_none());
}

#[test]
fn a_replaced_pair_is_used_at_once_and_clients_are_still_remembered() {
    let scene = Scene::new();
    let wanted = scene.wanted("shop.example", "shop.example");
    let certificates = Certificates::load(std::slice::from_ref(&wanted)).expect("is good");
    let client = scene.client();
    let (first, kind) = shake(&certificates, &client, "shop.example").expect("works");
    assert_eq!(kind, HandshakeKind::Full);
    assert_eq!(certificates.look(), Look::default());
    scene.install("shop.example", &scene.authority.sign("shop.example", 200));
    assert_eq!(certificates.look().replaced, ["shop.example"]);
    assert_eq!(certificates.look(), Look::default());
    let (_, kind) = shake(&certificates, &client, "shop.example").expect("works");
    assert_eq!(kind, HandshakeKind::Resumed);
    let (second, _) = shake(&certificates, &scene.client(), "shop.example").expect("works");
    assert_ne!(first, second);
    assert_eq!(second, first_in(&wanted.files));
}

#[test]
fn half_a_pair_waits_for_the_other_half() {
    let scene = Scene::new();
    let wanted = scene.wanted("shop.example", "shop.example");
    let certificates = Certificates::load(std::slice::from_ref(&wanted)).expect("is good");
    let before = first_in(&wanted.files);
    let next = scene.authority.sign("shop.example", 200);
    put(&wanted.files.certificate, &next.certificate);
    assert_eq!(certificates.look(), Look::default(), "it may come any moment");
    let told = certificates.look();
    assert_eq!(told.problems.len(), 1, "it did not come: {told:?}");
    assert!(told.problems[0].to_string().contains("is not the one of the certificate in"));
    assert_eq!(certificates.look(), Look::default(), "that was told");
    let (shown, _) = shake(&certificates, &scene.client(), "shop.example").expect("works");
    assert_eq!(shown, before);
    put(&wanted.files.key, &next.key);
    assert_eq!(certificates.look().replaced, ["shop.example"]);
    let (shown, _) = shake(&certificates, &scene.client(), "shop.example").expect("works");
    assert_eq!(shown, first_in(&wanted.files));
}

#[test]
fn what_cannot_be_used_is_told_once_and_leaves_the_old_one_in_place() {
    let scene = Scene::new();
    let wanted = scene.wanted("shop.example", "shop.example");
    let certificates = Certificates::load(std::slice::from_ref(&wanted)).expect("is good");
    let good = std::fs::read_to_string(&wanted.files.certificate).expect("reads");
    put(&wanted.files.certificate, &good[..good.len() / 2]);
    let told = certificates.look().problems;
    assert_eq!((told.len(), told[0].field), (1, "certificate"), "{told:?}");
    assert_eq!(certificates.look(), Look::default());
    std::fs::remove_file(&wanted.files.key).expect("removes");
    put(&wanted.files.certificate, &good);
    let told = certificates.look().problems;
    assert_eq!((told.len(), told[0].field), (1, "key"), "{told:?}");
    shake(&certificates, &scene.client(), "shop.example").expect("still works");
    // The same trouble again, after it was mended, is told again.
    scene.install("shop.example", &scene.authority.sign("shop.example", 50));
    assert_eq!(certificates.look().replaced, ["shop.example"]);
    std::fs::remove_file(&wanted.files.key).expect("removes");
    assert_eq!(certificates.look().problems.len(), 1);
}

#[test]
fn everything_that_is_wrong_is_told_together() {
    let scene = Scene::new();
    let good = scene.wanted("good.example", "good.example");
    let absent = HostCertificate { host: "a.example".to_owned(), files: scene.files("absent") };
    let mut no_key = scene.wanted("b.example", "b.example");
    no_key.files.key = good.files.certificate.clone();
    let mut folder = scene.wanted("c.example", "c.example");
    folder.files.certificate = scene.folder.path().to_owned();
    let mut second = scene.wanted("GOOD.example", "second.example");
    second.files.key = scene.files("good.example").key;
    let all = [good.clone(), absent.clone(), no_key, folder, second];
    let problems = Certificates::load(&all).err().expect("four are wrong");
    let found: Vec<_> = problems.iter().map(|one| (one.host.as_str(), one.field)).collect();
    assert_eq!(
        found,
        [
            ("good.example", "certificate"),
            ("a.example", "certificate"),
            ("b.example", "key"),
            ("c.example", "certificate"),
        ]
    );
    assert!(problems[0].message.ends_with("give all routes of a host the same"));
    assert!(problems[1].to_string().starts_with("tls.certificate of a.example: /"));
    assert!(problems[1].message.contains("absent.pem cannot be used: No such file"));
    assert!(problems[2].message.ends_with("give a private key as PEM, without a password"));
    assert!(problems[3].message.contains("it is no file"), "{}", problems[3]);
    // At run time the good ones go on, and the absent one is used when it comes.
    let certificates = Certificates::new().expect("can be");
    assert_eq!(certificates.replace(&[good, absent]).len(), 1);
    shake(&certificates, &scene.client(), "good.example").expect("works");
    assert_eq!(certificates.look(), Look::default());
    scene.install("absent", &scene.authority.sign("a.example", 50));
    assert_eq!(certificates.look().replaced, ["a.example"]);
    shake(&certificates, &scene.client(), "a.example").expect("works");
}

#[test]
fn ends_and_wrong_hosts_are_warned_about() {
    let scene = Scene::new();
    let wanted = [
        scene.wanted("shop.example", "*.example"),
        scene.wanted("*.example", "*.example"),
        scene.wanted("a.shop.example", "*.example"),
        scene.wanted("*", "anything.test"),
    ];
    let certificates = Certificates::load(&wanted).expect("all are good");
    let ends = certificates.ends();
    assert_eq!(ends.len(), 4);
    let end = ends[0].expires_at_ms;
    let others = certificates.warnings(end - 90 * DAY_MS);
    assert_eq!(others.len(), 1, "{others:?}");
    let expected = "is made for *.example, not for a.shop.example: clients will refuse it";
    assert!(others[0].ends_with(expected), "{others:?}");
    let soon = certificates.warnings(end - 3 * DAY_MS - 1);
    // Each file once, however many hosts have it.
    assert_eq!(soon.iter().filter(|text| text.ends_with("ends in 3 days")).count(), 2, "{soon:?}");
    assert!(certificates.warnings(end + 1).iter().any(|text| text.ends_with("has ended")));
}
