//! NATS server for tests, on loopback.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use autotune_fleet::{NatsOptions, NatsServer};

/// Running server, killed when it is dropped.
pub struct Server {
    child: Child,
    pub port: u16,
}

impl Server {
    /// Starts a server on a port, 0 for a free one; `None` if the program is missing.
    pub fn start(port: u16) -> Option<Self> {
        Self::start_with(port, None)
    }

    /// Starts a server with a configuration file.
    pub fn start_with(port: u16, config: Option<&Path>) -> Option<Self> {
        let program = std::env::var("AUTOTUNE_NATS_SERVER").unwrap_or_else(|_| "nats-server".into());
        let port = if port == 0 { "-1".to_string() } else { port.to_string() };
        let mut command = Command::new(program);
        if let Some(file) = config {
            command.arg("-c").arg(file);
        }
        let started =
            command.args(["-a", "127.0.0.1", "-p", &port]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn();
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                let required = std::env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
                assert!(required.split(',').all(|name| name != "nats-server"), "nats-server is required: {error}");
                eprintln!("skipped, nats-server is missing: {error}");
                return None;
            }
        };

        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut log = Vec::new();
        let port = lines.find_map(|line| {
            let port =
                line.split_once("client connections on 127.0.0.1:").and_then(|(_, port)| port.trim().parse().ok());
            log.push(line);
            port
        });
        thread::spawn(move || lines.for_each(drop));
        let port = port.unwrap_or_else(|| panic!("nats-server does not listen: {log:#?}"));
        Some(Self { child, port })
    }

    pub fn connect(&self, team: &str) -> Arc<NatsServer> {
        let url = format!("nats://127.0.0.1:{}", self.port);
        NatsServer::connect(&NatsOptions { url, team: team.into(), ..NatsOptions::default() }).unwrap()
    }

    /// Ends the server at once, as by kill -9.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a server that the tests which run at the same time share, with a team of its own for
/// each call; `None` if the program is missing. The last test to drop it ends it.
pub fn shared_team() -> Option<(Arc<NatsServer>, Arc<Server>)> {
    static SHARED: Mutex<(Weak<Server>, usize)> = Mutex::new((Weak::new(), 0));
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let server = shared.0.upgrade().or_else(|| Server::start(0).map(Arc::new))?;
    *shared = (Arc::downgrade(&server), shared.1 + 1);
    Some((server.connect(&format!("team-{}", shared.1)), server))
}
