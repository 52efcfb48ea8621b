//! Damaged messages between a measurer and its worker: a relay program between them changes the
//! messages.

use std::io::{self, Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use autotune_measure::{MeasureError, MeasureOptions, WorkerCommand, WorkerMeasurer};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::damage::replace_one;
use crate::kernels::{options, right};
use crate::long::or_long;

pub(crate) const TESTS: &[(&str, fn())] =
    &[("damaged_messages_end_in_typed_errors", damaged_messages_end_in_typed_errors)];

/// Argument with which this program relays; the seed follows as another argument.
pub(crate) const RELAY_ARGUMENT: &str = "relay";

/// One message in this number is damaged.
const ONE_IN: u32 = 2;

/// For one seed in this number the worker's messages are damaged, otherwise the measurer's. The
/// former takes longer, because a worker that sent an invalid message gets time to exit.
const WORKERS_ONE_IN: u64 = 6;

/// Relays standard input to a worker, and the worker's output to standard output.
pub(crate) fn run(seed: Option<String>) -> ExitCode {
    let seed: u64 = seed.and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let program = std::env::current_exe().unwrap();
    let mut worker = Command::new(program).arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (worker.stdin.take().unwrap(), worker.stdout.take().unwrap());
    let rng = || ChaCha8Rng::seed_from_u64(seed);
    let is_about_worker = seed.is_multiple_of(WORKERS_ONE_IN);
    let (requests, responses) = if is_about_worker { (None, Some(rng())) } else { (Some(rng()), None) };
    thread::spawn(move || pass_on(&mut io::stdin(), &mut input, requests, 0));
    // The greeting is never damaged, because a measurer waits long for it.
    let _ = pass_on(&mut output, &mut io::stdout(), responses, 1);
    let _ = worker.wait();
    ExitCode::SUCCESS
}

/// Relays messages until the stream ends. Messages after the first `whole` ones may be damaged.
fn pass_on(from: &mut impl Read, to: &mut impl Write, mut rng: Option<ChaCha8Rng>, whole: usize) -> io::Result<()> {
    for index in 0.. {
        let mut lens = [0; 8];
        from.read_exact(&mut lens)?;
        let len = |at: usize| u32::from_le_bytes([lens[at], lens[at + 1], lens[at + 2], lens[at + 3]]) as usize;
        let (mut text, mut raw) = (vec![0; len(0)], vec![0; len(4)]);
        from.read_exact(&mut text)?;
        from.read_exact(&mut raw)?;
        let is_hit = rng.as_mut().is_some_and(|rng| index >= whole && rng.random_range(0..ONE_IN) == 0);
        match rng.as_mut().filter(|_| is_hit) {
            Some(rng) => to.write_all(&damaged(lens, text, raw, rng))?,
            None => to.write_all(&[&lens[..], &text, &raw].concat())?,
        }
        to.flush()?;
    }
    Ok(())
}

/// Returns the bytes of a message with damage. Code is not damaged: other tests cover broken code.
fn damaged(mut lens: [u8; 8], mut text: Vec<u8>, raw: Vec<u8>, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let at = rng.random_range(0..text.len());
    match rng.random_range(0..5) {
        0 => text[at] ^= 1 << rng.random_range(0..8),
        1 => lens[rng.random_range(0..8)] ^= 1 << rng.random_range(0..8),
        2 => {
            let whole = [&lens[..], &text, &raw].concat();
            return whole[..rng.random_range(0..whole.len())].to_vec();
        }
        _ => {
            let mut message: Value = serde_json::from_slice(&text).unwrap();
            replace_one(&mut message, rng);
            text = serde_json::to_vec(&message).unwrap();
            lens[..4].copy_from_slice(&(text.len() as u32).to_le_bytes());
        }
    }
    [&lens[..], &text, &raw].concat()
}

fn damaged_messages_end_in_typed_errors() {
    let own = WorkerCommand::find().unwrap();
    let (mut measured, mut failed, mut refused) = (0, 0, 0);
    for seed in 0..or_long([6, 14]) {
        let relay = own.clone().with_arguments([RELAY_ARGUMENT.into(), seed.to_string()]);
        let options = MeasureOptions { run_limit_secs: 0.3, ..options() };
        let mut measurer = WorkerMeasurer::with(relay, options).unwrap();
        match measurer.run_built(&right(1)).map(|measurement| measurement.outcome) {
            Ok(Ok(_)) => measured += 1,
            Ok(Err(_)) => failed += 1,
            Err(MeasureError::Worker { .. } | MeasureError::Memory { .. }) => refused += 1,
            Err(other) => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(measured > 0 && failed + refused > 0, "{measured} measured, {failed} failed, {refused} refused");
}
