//! Command-line definition. Usage errors are reported in one line.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use autotune_fleet::SocketPlace;
use autotune_measurement::Backend;
use autotune_network::{Subject, Waiting};
use autotune_schedules::Config;
use autotune_workloads::Workload;
use clap::builder::StyledStr;
use clap::{Args, Parser, Subcommand, error::ErrorKind};

use crate::search_kind::SearchKind;

mod calls;
mod compile;
mod db;
mod failure;
mod fleet;
mod help;
mod phases;
mod quantize;
mod report;
mod run;
mod shapes;
mod subject;
mod target;
mod variant;

pub(crate) use compile::CompileArgs;
pub(crate) use db::{DatabasePath, DbArgs, LookupArgs, RecordsArgs};
pub(crate) use failure::Failure;
pub(crate) use fleet::{
    FleetAction, FleetCollectArgs, FleetStatusArgs, FleetUpArgs, FleetWorkerArgs, FollowArgs, NatsArgs,
};
pub(crate) use phases::{PhasedModel, needs_phases};
pub(crate) use quantize::QuantizeArgs;
pub(crate) use report::ReportArgs;
pub(crate) use run::RunArgs;
pub(crate) use shapes::{ModelOfShapes, refusal};
pub(crate) use subject::{GivenArgs, InputArgs, InputFile, LoadedNetwork, SubjectArgs};
pub(crate) use target::{TargetArgs, check_precision};
pub(crate) use variant::VariantArgs;

/// Finds fast schedules for tensor operators by measuring a few hundred and learning from them.
#[derive(Debug, Parser)]
#[command(name = "autotune", version, after_help = help::examples(), args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) tune: TuneArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists the tasks of a network: how often each occurs, its FLOPs and the size of its schedule
    /// space
    #[command(after_help = help::TASKS)]
    Tasks {
        #[command(flatten)]
        subject: SubjectArgs,
        #[command(flatten)]
        target: TargetArgs,
    },
    /// Prints the best schedule in the database, its time and its provenance as JSON
    #[command(after_help = help::BEST)]
    Best {
        /// A workload (conv2d:..., matmul:...)
        #[arg(value_name = "WORKLOAD")]
        workload: Workload,
        #[command(flatten)]
        target: TargetArgs,
        #[command(flatten)]
        db: LookupArgs,
    },
    /// Exports or imports the database as JSON Lines, one record a line
    Log {
        #[command(subcommand)]
        action: LogAction,
    },
    /// Re-measures the best schedules against the default ones, interleaved and checked; with
    /// --profile, runs a network step by step
    #[command(after_help = help::BENCH)]
    Bench {
        #[command(flatten)]
        subject: SubjectArgs,
        #[command(flatten)]
        target: TargetArgs,
        #[command(flatten)]
        db: DbArgs,
        #[command(flatten)]
        variant: VariantArgs,
        /// Code generator: asm (in this process, on CPUs with AVX2 or AVX-512) or c (a C compiler)
        #[arg(long, value_name = "BACKEND", default_value_t)]
        backend: Backend,
        /// Run a network like `autotune run`, and print time, rate, layouts and origin of the
        /// schedule of every step
        #[arg(long, conflicts_with_all = ["backend", "exact", "dtype"])]
        profile: bool,
        /// Spinning of a CPU's helper threads for some microseconds before they sleep [default: on]
        #[arg(long, value_name = "on|off", requires = "profile", value_parser = target::parse_spin)]
        spin: Option<Waiting>,
        /// Write the result as one JSON object to this file ('-' for standard output)
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Prints the loop nest of a schedule and the code made from it
    #[command(after_help = help::SHOW)]
    Show {
        /// A workload (conv2d:..., matmul:...)
        #[arg(value_name = "WORKLOAD")]
        workload: Workload,
        /// The schedule as JSON; by default the best in the database, else the default one
        #[arg(long, value_name = "JSON", value_parser = parse_config)]
        config: Option<Config>,
        #[command(flatten)]
        target: TargetArgs,
        #[command(flatten)]
        db: LookupArgs,
        /// The code to print: asm (on CPUs with AVX2 or AVX-512, else C) or c
        #[arg(long, value_name = "BACKEND", default_value_t)]
        backend: Backend,
    },
    /// Runs a network in this process, with the best schedules in the database, and prints its run
    /// time
    #[command(after_help = run::EXAMPLES)]
    Run(RunArgs),
    /// Compiles a network to a shared library with a C header: machine code and weights, with the
    /// best schedules in the database
    #[command(after_help = compile::EXAMPLES)]
    Compile(CompileArgs),
    /// Quantises a network to 8-bit integers: scales from example inputs, and layers that exceed an
    /// error stay in floating point. Writes an ONNX file with QuantizeLinear and DequantizeLinear
    #[command(after_help = quantize::EXAMPLES)]
    Quantize(QuantizeArgs),
    /// Writes the results in the database as one HTML page: curves, roofline, model, knobs,
    /// failures, provenance
    #[command(after_help = report::EXAMPLES)]
    Report(ReportArgs),
    /// Writes or checks a snapshot, the file in which deployed programs look up schedules
    Snapshot {
        #[command(subcommand)]
        action: SnapshotAction,
    },
    /// Measures for tuners on other machines, and shows such workers
    Fleet {
        #[command(subcommand)]
        action: FleetAction,
    },
    /// Lists the available devices and their measured ceilings
    Targets,
    /// Serves measurements to a parent process over standard input and output
    #[command(hide = true)]
    Worker,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogAction {
    /// Writes every record to FILE ('-' for standard output), also while a tuner runs
    #[command(after_help = help::LOG_EXPORT)]
    Export {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Save the readable part of a damaged database, and report the rest
        #[arg(long)]
        salvage: bool,
        #[command(flatten)]
        db: RecordsArgs,
    },
    /// Adds the records of FILE ('-' for standard input) as untrusted records, which tuning
    /// measures before it uses them; records already present are not changed
    #[command(after_help = help::LOG_IMPORT)]
    Import {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Skip invalid lines, instead of importing nothing
        #[arg(long)]
        skip_invalid: bool,
        #[command(flatten)]
        db: DbArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotAction {
    /// Writes the best schedule of every workload in the database to FILE, also while a tuner runs.
    /// An older snapshot is replaced atomically: programs that read it are not disturbed
    #[command(after_help = help::SNAPSHOT_WRITE)]
    Write {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Only schedules for this target, for any number of threads: cpu (this machine's CPU),
        /// cuda (this machine's device), cuda:sm_90, opencl (all devices of the kind) [default:
        /// everything]
        #[arg(long, value_name = "TARGET")]
        target: Option<String>,
        #[command(flatten)]
        db: RecordsArgs,
    },
    /// Keeps FILE up to date with the best schedules of a team's collector, until Ctrl-C
    Follow(FollowArgs),
    /// Verifies the checksums of FILE, and proves every schedule correct for its target. Exit code
    /// 1 on any error
    #[command(after_help = help::SNAPSHOT_CHECK)]
    Check {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// A network (resnet18, model.onnx) or a workload (conv2d:..., matmul:...)
    #[arg(value_name = "NETWORK|WORKLOAD", value_parser = Subject::of, required = true)]
    pub(crate) subject: Option<Subject>,
    #[command(flatten)]
    pub(crate) inputs: InputArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Number of measurements over all tasks, including earlier runs; 0 to only time the schedules
    /// that are predicted to be the fastest [default: 64 per task, or no limit with --time-budget]
    #[arg(long, value_name = "N", value_parser = parse_trials)]
    pub(crate) trials: Option<usize>,
    /// Wall-clock time after which tuning stops: 90s, 10m, 1h30m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) time_budget: Option<Duration>,
    /// Search algorithm: xgb (cost model), ga (genetic), random or grid
    #[arg(long, value_name = "TUNER", default_value = "xgb")]
    pub(crate) tuner: SearchKind,
    /// Code generator: asm (in this process, on CPUs with AVX2 or AVX-512) or c (a C compiler)
    #[arg(long, value_name = "BACKEND", default_value_t)]
    pub(crate) backend: Backend,
    /// Do not use knowledge of other workloads: neither records of other tasks nor the model and
    /// the schedules that come with autotune
    #[arg(long)]
    pub(crate) no_transfer: bool,
    #[command(flatten)]
    pub(crate) variant: VariantArgs,
    /// Measure on this fleet worker (HOST:PORT or unix:PATH) instead of this machine; repeat it for
    /// several workers of one target key
    #[arg(long, value_name = "ADDRESS", value_parser = fleet::parse_address)]
    pub(crate) connect: Vec<SocketPlace>,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
    /// Share records with the team's collector at this address (HOST:PORT or unix:PATH): schedules
    /// that other tuners measured are not measured again [default: that of the team, with --nats]
    #[arg(long, value_name = "ADDRESS", value_parser = fleet::parse_address)]
    pub(crate) collector: Option<SocketPlace>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// Write the result as one JSON object to this file ('-' for standard output)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Parses the command line. Otherwise returns the text to print and the exit code: clap's own text
/// for help and version, one line for errors.
pub(crate) fn parse(args: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Cli, (String, u8)> {
    Cli::try_parse_from(args).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => (styled(&error.render()), 0),
        _ => (one_line(&error), 2),
    })
}

/// Formats text for standard output: with styles on a terminal, unless `NO_COLOR` is set
/// (<https://no-color.org>).
fn styled(text: &StyledStr) -> String {
    let wants_styles = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if wants_styles { text.ansi().to_string() } else { text.to_string() }
}

/// Returns the first paragraph of clap's message as one line, without its leading `error:`.
fn one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a subcommand or an argument is missing (see autotune --help)".into();
    }
    let text = error.render().to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let line = words.join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    // A reason that quotes the bad value needs no introduction.
    let line = match line.split_once("': ") {
        Some((head, reason)) if head.starts_with("invalid value") && reason.contains('\'') => reason,
        _ => line,
    };
    format!("{line} (see autotune --help)")
}

fn parse_trials(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("--trials '{text}' is not a whole number"))
}

fn parse_config(text: &str) -> Result<Config, String> {
    serde_json::from_str(text).map_err(|e| format!("--config is not a schedule in JSON: {e}"))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    autotune::parse_duration(text).map_err(|error| format!("--time-budget {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parsed(line: &str) -> Result<Cli, (String, u8)> {
        parse(line.split_whitespace().map(Into::into))
    }

    fn error(line: &str) -> String {
        let (message, code) = parsed(line).unwrap_err();
        assert_eq!(code, 2, "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        message
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_subject_alone_is_tuned_and_subcommands_stand_beside_it() {
        let tune = parsed("autotune resnet18 --trials 256 --time-budget 1h30m --tuner ga --seed 7").unwrap().tune;
        assert_eq!((tune.trials, tune.tuner, tune.seed), (Some(256), SearchKind::Genetic, 7));
        assert_eq!(tune.time_budget, Some(Duration::from_secs(5400)));
        assert_eq!(tune.subject, Some(Subject::Network("resnet18".into())));
        assert!(matches!(parsed("autotune targets").unwrap().command, Some(Command::Targets)));
        assert!(matches!(parsed("autotune tasks resnet18").unwrap().command, Some(Command::Tasks { .. })));
        let log = parsed("autotune log export - --db x").unwrap().command;
        assert!(matches!(log, Some(Command::Log { action: LogAction::Export { .. } })));
    }

    #[test]
    fn bad_usage_is_one_line_that_names_the_problem() {
        for (line, expected) in [
            ("autotune", "<NETWORK|WORKLOAD>"),
            ("autotune resnet19", "unknown network 'resnet19'"),
            ("autotune resnet18 --trials many", "--trials 'many'"),
            ("autotune resnet18 --tuner bayes", "unknown tuner 'bayes'"),
            (
                "autotune resnet18 --dtype f64",
                "--dtype 'f64' is not an element type (f32, tf32, f16, bf16, i8, u8, i32)",
            ),
            ("autotune resnet18 --backend rust", "unknown backend 'rust'"),
            ("autotune resnet18 --time-budget 0s", "--time-budget '0s'"),
            ("autotune resnet18 --time-budget 5x", "--time-budget '5x'"),
            ("autotune resnet18 --time-budget 99999999999999999999h", "--time-budget"),
            ("autotune resnet18 --frobnicate", "--frobnicate"),
            ("autotune resnet18 extra", "extra"),
            ("autotune conv2d:c=0,h=8,w=8,o=4,k=3", "field 'c': must be at least 1"),
            ("autotune conv2d:c=3,h=8,w=8,o=4,k=3,g=2", "field 'g'"),
            ("autotune matmul:m=4,n=4", "field 'k' is missing"),
            ("autotune best resnet18", "unknown operator 'resnet18'"),
            ("autotune best", "<WORKLOAD>"),
            ("autotune log", "missing"),
            ("autotune snapshot", "missing"),
            ("autotune snapshot write", "<FILE>"),
            ("autotune snapshot check", "<FILE>"),
            ("autotune show matmul:m=4,n=4,k=4 --config {", "--config is not a schedule"),
        ] {
            let message = error(line);
            assert!(message.contains(expected), "{line}: {message}");
        }

        assert!(parsed("autotune --help").is_err_and(|(text, code)| code == 0 && text.contains("Examples:")));
    }

    #[test]
    fn threads_and_target_are_checked_against_the_machine() {
        let detect = |line: &str| parsed(line).unwrap().tune.target.detect(&[]);
        assert!(detect("autotune resnet18 --threads 1").is_ok());
        let error = |line| detect(line).unwrap_err().to_string();
        assert!(error("autotune resnet18 --threads 100000").contains("--threads 100000"));
        assert!(error("autotune resnet18 --target tpu").contains("unknown target 'tpu'"));
        assert!(error("autotune resnet18 --target cpu:sse2").contains("unknown target 'cpu:sse2'"));
    }
}
