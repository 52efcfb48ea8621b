//! Support for test programs that run themselves as another process.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Environment variable of the other process, by which it knows that its arguments are not the test
/// runner's.
const ROLE: &str = "AUTOTUNE_DB_TEST_ROLE";

/// Returns the role and arguments of this process if it is another process of a test.
pub fn role() -> Option<(String, Vec<String>)> {
    Some((std::env::var(ROLE).ok()?, std::env::args().skip(1).collect()))
}

pub fn start(role: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ROLE, role).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits for the process and returns its standard output and standard error. Fails if it hangs or
/// does not succeed.
pub fn finish(mut child: Child, what: &str) -> (String, String) {
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > Duration::from_secs(120) => {
                child.kill().unwrap();
                panic!("{what}: hangs");
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let output = child.wait_with_output().unwrap();
    let (said, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(status.success(), "{what}: {status}: {said} {complaint}");
    (said.into_owned(), complaint.into_owned())
}

/// Returns `default`, or the number in `AUTOTUNE_DB_TEST_ROUNDS`, for finding rare failures.
pub fn rounds(default: u64) -> u64 {
    std::env::var("AUTOTUNE_DB_TEST_ROUNDS").map_or(default, |n| n.parse().unwrap())
}
