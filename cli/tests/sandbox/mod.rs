//! Temporary folder in which tests run the `autotune` command as a user does. Each test file uses
//! only a part of this module.
#![allow(dead_code)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const TINY: &str = "matmul:m=8,n=16,k=8";

/// Temporary folder with a database, one for each test.
pub(crate) struct Sandbox {
    pub(crate) dir: TempDir,
}

/// Exit code and output of a command.
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

    /// Checks that the command failed with one line that contains `words`.
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

    /// Returns the command with its database in this folder.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_autotune"));
        command.args(line.split_whitespace()).current_dir(self.dir.path());
        // The first test measures the ceilings and the others share them; the user's own cache
        // stays out of tests.
        command.env("AUTOTUNE_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/ceilings"));
        command.env("AUTOTUNE_DB", self.path("db")).env("RUST_BACKTRACE", "0").stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, line: &str) -> Ended {
        finish(self.command(line))
    }

    /// Starts a long run, and returns once it has measured a candidate.
    pub(crate) fn start(&self, line: &str) -> Child {
        self.start_in(&std::env::temp_dir(), line)
    }

    /// Starts a long run as [`start`](Self::start) does, with its temporary files in a folder.
    pub(crate) fn start_in(&self, tmp: &Path, line: &str) -> Child {
        let mut command = self.command(line);
        let mut child = command.env("TMPDIR", tmp).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = Vec::new();
        let lines = BufReader::new(child.stderr.as_mut().unwrap()).lines().map(Result::unwrap);
        let measured = lines.inspect(|line| said.push(line.clone())).any(|line| line.starts_with('['));
        if !measured {
            panic!("ended before it measured anything: {:?}\n{}", child.wait(), said.join("\n"));
        }
        child
    }

    /// Returns the records of the database as JSON.
    pub(crate) fn records(&self) -> Vec<Value> {
        let lines = self.run("log export -").expect(0).stdout;
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Counts the records of searches, without those of races.
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
    // SAFETY: the child has not been waited for, so that its process id cannot belong to another
    // process.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}
