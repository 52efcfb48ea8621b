//! Exported functions of a library, and their return codes.

use super::description::Field;

/// Alignment of a workspace in bytes.
pub(super) const ALIGNMENT: usize = 64;

/// Inputs or outputs of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Input,
    Output,
}

/// Function that a library exports under its network's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Export {
    WorkspaceBytes,
    Init,
    Run,
    Weights,
    WeightsBytes,
    UseWeights,
    Error,
    Threads,
    InstructionSet,
    InstructionSets,
    InitFor,
    UsedSet,
    Variants,
    Variant,
    Count(Side),
    Of(Side, Field),
}

/// Return code of a function that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    Workspace,
    Processor,
    NotInitialised,
    Tensor,
    Weights,
    Tiles,
    Shape,
    Set,
}

impl Side {
    pub(super) const ALL: [Self; 2] = [Self::Input, Self::Output];

    /// Returns the word in function names.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }
}

impl Export {
    /// Returns the functions of a library, with one or with several variants and instruction sets.
    pub(super) fn all(has_variants: bool, has_sets: bool) -> Vec<Self> {
        let of = |side| Field::ALL.map(|field| Self::Of(side, field));
        let [inputs, outputs] = Side::ALL.map(of);
        let counts = Side::ALL.map(Self::Count);
        let rest = [Self::WorkspaceBytes, Self::Init, Self::Run, Self::Error, Self::Threads, Self::InstructionSet];
        let weights = [Self::Weights, Self::WeightsBytes, Self::UseWeights];
        let variants: &[Self] = if has_variants { &[Self::Variants, Self::Variant] } else { &[] };
        let sets: &[Self] = if has_sets { &[Self::InstructionSets, Self::InitFor, Self::UsedSet] } else { &[] };
        [&rest[..], &weights[..], sets, variants, &counts[..], &inputs[..], &outputs[..]].concat()
    }

    /// Returns the suffix of the function's name.
    pub(super) fn word(self) -> String {
        match self {
            Self::WorkspaceBytes => "workspace_bytes".into(),
            Self::Init => "init".into(),
            Self::Run => "run".into(),
            Self::Weights => "weights".into(),
            Self::WeightsBytes => "weights_bytes".into(),
            Self::UseWeights => "use_weights".into(),
            Self::Error => "error".into(),
            Self::Threads => "threads".into(),
            Self::InstructionSet => "instruction_set".into(),
            Self::InstructionSets => "instruction_sets".into(),
            Self::InitFor => "init_for".into(),
            Self::UsedSet => "used_set".into(),
            Self::Variants => "variants".into(),
            Self::Variant => "variant".into(),
            Self::Count(side) => format!("{}s", side.word()),
            Self::Of(side, field) => format!("{}_{}", side.word(), field.word()),
        }
    }
}

const TILES_REFUSED: &str = "the system refuses tile registers (AMX), which need Linux 5.16 or newer, and AT_MINSIGSTKSZ \
                             bytes in every signal stack";

impl Fault {
    pub(super) const ALL: [Self; 9] = [
        Self::None,
        Self::Workspace,
        Self::Processor,
        Self::NotInitialised,
        Self::Tensor,
        Self::Weights,
        Self::Tiles,
        Self::Shape,
        Self::Set,
    ];

    /// Returns the suffix of the code's name, and its message.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::None => ("OK", "done"),
            Self::Workspace => ("ERROR_WORKSPACE", "the workspace is NULL or not aligned to 64 bytes"),
            Self::Processor => ("ERROR_PROCESSOR", "this processor lacks instructions that the library uses"),
            Self::NotInitialised => ("ERROR_NOT_INITIALISED", "the workspace was not initialised by this library"),
            Self::Tensor => ("ERROR_TENSOR", "a pointer to an input or an output is NULL"),
            Self::Weights => ("ERROR_WEIGHTS", "the copy of the weights is NULL or not aligned to 64 bytes"),
            Self::Tiles => ("ERROR_TILES", TILES_REFUSED),
            Self::Set => ("ERROR_SET", "the library has no code for an instruction set of this number"),
            Self::Shape => ("ERROR_SHAPE", "no variant of the library has these shapes of the inputs"),
        }
    }
}
