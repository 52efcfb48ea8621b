//! Security of a real NATS server: TLS, client certificates, NKeys and credentials files. Keys and
//! certificates are made at test time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use autotune_fleet::{FleetError, NatsOptions, NatsServer};
use nkeys::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::Server;
use crate::sim::{SimDevice, SimWorker, candidates, check_results, connect, measure_all};

/// Folder with the files of a test.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Starts a server with a configuration.
    fn server(&self, config: &str) -> Option<Server> {
        Server::start_with(0, Some(&self.write("server.conf", config)))
    }

    fn openssl(&self, line: &str) {
        let mut command = Command::new("openssl");
        let output = command.args(line.split(' ')).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Makes an authority, and certificates of a server and a client that it signed.
    fn certificates(&self) {
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        self.openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=authority -days 2"));
        self.write("names", "subjectAltName=IP:127.0.0.1");
        for name in ["server", "client"] {
            self.openssl(&format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
            self.openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -extfile names"
            ));
        }
    }
}

/// Returns true if there is `openssl`; otherwise tests are skipped, unless it is required.
fn has_openssl() -> bool {
    let version = Command::new("openssl").arg("version").stdout(Stdio::null()).status();
    let required = std::env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
    let is_there = version.is_ok_and(|status| status.success());
    assert!(is_there || required.split(',').all(|name| name != "openssl"), "openssl is required");
    if !is_there {
        eprintln!("skipped, openssl is missing");
    }
    is_there
}

fn options(server: &Server, scheme: &str) -> NatsOptions {
    let url = format!("{scheme}://127.0.0.1:{}", server.port);
    NatsOptions { url, team: "team".into(), ..NatsOptions::default() }
}

/// Checks that a worker and a tuner reach each other with these options.
fn check_measures(options: &NatsOptions) {
    let team = NatsServer::connect(options).unwrap();
    let device = SimDevice::default();
    let _worker = SimWorker::start(team.listen().unwrap(), "worker", &device);
    let tuner = NatsServer::connect(options).unwrap();
    let mut fleet = connect(tuner.find().unwrap()).0.unwrap();
    let candidates = candidates(30, 1);
    assert_eq!(check_results(&candidates, measure_all(&mut fleet, &candidates)), 0);
}

/// Checks that these options are refused soon, in one line, and returns it.
fn refused(options: &NatsOptions) -> String {
    let start = Instant::now();
    let error = NatsServer::connect(options).map(drop).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(5));
    let text = error.to_string();
    assert!(matches!(error, FleetError::Server { .. }) && text.lines().count() == 1, "{text}");
    text
}

#[test]
fn tls_needs_the_authority_of_the_server() {
    if !has_openssl() {
        return;
    }
    let files = Files::new();
    files.certificates();
    let path = |name: &str| files.path(name).display().to_string();
    let config = format!("tls {{ cert_file: {:?}, key_file: {:?} }}", path("server.pem"), path("server.key"));
    let Some(server) = files.server(&config) else { return };

    for scheme in ["tls", "nats"] {
        let trusting = NatsOptions { authorities: Some(files.path("ca.pem")), ..options(&server, scheme) };
        check_measures(&trusting);
        let text = refused(&options(&server, scheme));
        assert!(text.contains("certificate") || text.contains("TLS"), "{text}");
    }
    let missing = NatsOptions { authorities: Some("/nowhere/ca.pem".into()), ..options(&server, "tls") };
    assert!(refused(&missing).contains("/nowhere/ca.pem: No such file"));
}

#[test]
fn servers_that_ask_for_certificates_get_them() {
    if !has_openssl() {
        return;
    }
    let files = Files::new();
    files.certificates();
    let path = |name: &str| files.path(name).display().to_string();
    let [certificate, key, authority] = ["server.pem", "server.key", "ca.pem"].map(path);
    let config =
        format!("tls {{ cert_file: {certificate:?}, key_file: {key:?}, ca_file: {authority:?}, verify: true }}");
    let Some(server) = files.server(&config) else { return };

    let without = NatsOptions { authorities: Some(files.path("ca.pem")), ..options(&server, "tls") };
    refused(&without);
    let certificate = Some((files.path("client.pem"), files.path("client.key")));
    check_measures(&NatsOptions { certificate, ..without });
}

#[test]
fn nkeys_prove_who_connects() {
    let (user, other, files) = (KeyPair::new_user(), KeyPair::new_user(), Files::new());
    let config = format!("authorization {{ users: [ {{ nkey: {} }} ] }}", user.public_key());
    let Some(server) = files.server(&config) else { return };
    let seed = |name: &str, pair: &KeyPair| Some(files.write(name, &format!("{}\n", pair.seed().unwrap())));
    check_measures(&NatsOptions { nkey: seed("user.nk", &user), ..options(&server, "nats") });
    let stranger = NatsOptions { nkey: seed("other.nk", &other), ..options(&server, "nats") };
    assert!(refused(&stranger).contains("authorization violation"), "{}", refused(&stranger));
    refused(&options(&server, "nats"));
    refused(&NatsOptions { nkey: Some(files.write("no.nk", "no seed")), ..options(&server, "nats") });
}

/// Encodes bytes as base64 for URLs.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = |part: &[u8]| {
        let bits = part.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        let of_part = (0..=part.len()).map(move |at| DIGITS[(bits >> (18 - 6 * at)) as usize & 63] as char);
        of_part.collect::<String>()
    };
    bytes.chunks(3).map(digits).collect()
}

/// Returns claims about a key as a JSON web token, signed by another.
fn token(issuer: &KeyPair, subject: &KeyPair, mut claims: Value) -> String {
    claims["version"] = json!(2);
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let body = json!({
        "jti": "test", "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject.public_key(), "name": "test",
        "nats": claims,
    });
    let text = [header, body].map(|part| base64(part.to_string().as_bytes())).join(".");
    format!("{text}.{}", base64(&issuer.sign(text.as_bytes()).unwrap()))
}

fn credentials(account: &KeyPair, user: &KeyPair, permissions: Value) -> String {
    let mut claims = json!({ "type": "user", "subs": -1, "data": -1, "payload": -1 });
    claims.as_object_mut().unwrap().extend(permissions.as_object().unwrap().clone());
    let token = token(account, user, claims);
    let seed = user.seed().unwrap();
    format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
}

#[test]
fn credentials_files_admit_and_limit_their_users() {
    let (operator, account, user) = (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_user());
    let limits = json!({ "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1 });
    let of_operator = token(&operator, &operator, json!({ "type": "operator" }));
    let of_account = token(&operator, &account, json!({ "type": "account", "limits": limits }));
    let config = format!(
        "operator: {of_operator}\nresolver: MEMORY\nresolver_preload: {{ {}: {of_account} }}\n",
        account.public_key()
    );
    let files = Files::new();
    let Some(server) = files.server(&config) else { return };
    let with = |path: &Path| NatsOptions { credentials: Some(path.to_path_buf()), ..options(&server, "nats") };

    let admitted = files.write("user.creds", &credentials(&account, &user, json!({})));
    check_measures(&with(&admitted));
    let stranger = credentials(&KeyPair::new_account(), &user, json!({}));
    let text = refused(&with(&files.write("stranger.creds", &stranger)));
    assert!(text.contains("authorization violation"), "{text}");
    refused(&options(&server, "nats"));
    refused(&with(&files.write("no.creds", "no credentials")));

    // A user of one team: subjects of others are not permitted.
    let subjects = json!({ "allow": ["autotune.team.>", "_INBOX.>"] });
    let limited = credentials(&account, &user, json!({ "pub": subjects, "sub": subjects }));
    let limited = with(&files.write("limited.creds", &limited));
    check_measures(&limited);
    let there = NatsServer::connect(&with(&admitted)).unwrap();
    let (own, other) = ("team", "other");
    let worker = |team: &str| {
        let server = NatsServer::connect(&NatsOptions { team: team.into(), ..with(&admitted) }).unwrap();
        SimWorker::start(server.listen().unwrap(), team, &SimDevice::default())
    };
    let _workers = [own, other].map(worker);
    let found = |team: &str| {
        let server = NatsServer::connect(&NatsOptions { team: team.into(), ..limited.clone() }).unwrap();
        server.find().map_or(0, |found| found.len())
    };
    assert_eq!([found(own), found(other), there.find().unwrap().len()], [1, 0, 1]);
}
