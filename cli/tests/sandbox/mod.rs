//! A folder in which the `autotune` command is driven as a user drives it. Each test file uses a
//! part of it.
#![allow(dead_code)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const TINY: &str = "matmul:m=8,n=16,k=8";

/// A folder of its own for each test.
pub(crate) struct Sandbox {
    pub(crate) dir: TempDir,
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Checks that it failed with one line that holds `words`.
    pub(crate) fn expect_line(self, code: i32, words: &str) {
        let ended = self.expect(code);
        assert_eq!(ended.stderr.lines().count(), 1, "more than one line:\n{}", ended.stderr);
        assert!(ended.stderr.contains(words), "'{words}' is not in: {}", ended.stderr);
        assert!(ended.stderr.starts_with("autotune: "), "{}", ended.stderr);
    }
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command with its database in this folder.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_autotune"));
        command.args(line.split_whitespace()).current_dir(self.dir.path());
        // Measured by the first test, kept for the others; the user's own cache is none of theirs.
        command.env("AUTOTUNE_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/ceilings"));
        command.env("AUTOTUNE_DB", self.path("db")).env("RUST_BACKTRACE", "0").stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, line: &str) -> Ended {
        finish(self.command(line))
    }

    /// Starts a run that goes on for long, and returns once it has measured something.
    pub(crate) fn start(&self, line: &str) -> Child {
        self.start_in(&std::env::temp_dir(), line)
    }

    /// The same, with its temporary files in a folder.
    pub(crate) fn start_in(&self, tmp: &Path, line: &str) -> Child {
        let mut command = self.command(line);
        let mut child = command.env("TMPDIR", tmp).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.as_mut().unwrap()).lines().map(Result::unwrap);
        let measured = lines.any(|line| line.starts_with('['));
        if !measured {
            panic!("ended before it measured anything: {:?}", child.wait());
        }
        child
    }

    /// The records of the database, as JSON.
    pub(crate) fn records(&self) -> Vec<Value> {
        let lines = self.run("log export -").expect(0).stdout;
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Records of the search, races left out.
    pub(crate) fn searched(&self) -> usize {
        self.records().iter().filter(|record| record["phase"] == "search").count()
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path(name)).unwrap()).unwrap()
    }
}

pub(crate) fn finish(mut command: Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

pub(crate) fn signal(child: &Child, signal: i32) {
    // SAFETY: sends a signal to a child that has not been waited for, so its process number is
    // still its own.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}
