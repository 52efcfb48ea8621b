//! Data of a library for CUDA devices: words that its driver reads, and the pieces that they refer
//! to.

use std::collections::HashMap;
use std::sync::Arc;

use super::recorder::{DeviceRecording, RecordedLaunch};

/// Number of words before the tables; `driver.c` names their positions.
const HEAD: usize = 16;
/// Alignment of pieces in bytes.
const ALIGNMENT: usize = 64;

/// Input or output of the network.
pub(super) struct LibraryTensor {
    pub(super) buffer: usize,
    pub(super) first_byte: usize,
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
}

/// Contents of a library.
pub(super) struct CudaContents<'a> {
    /// Compute capability, times ten.
    pub(super) sm: u32,
    pub(super) recorded: &'a DeviceRecording,
    /// Allocation of the tensors of a run.
    pub(super) arena: usize,
    pub(super) launches: &'a [RecordedLaunch],
    pub(super) inputs: Vec<LibraryTensor>,
    pub(super) outputs: Vec<LibraryTensor>,
}

/// Data with the sizes of its parts in bytes.
pub(super) struct LibraryData {
    pub(super) bytes: Vec<u8>,
    pub(super) code_bytes: usize,
    pub(super) constant_bytes: usize,
}

/// Modules in the order of their first launch, by the address of their code.
#[derive(Default)]
struct Modules<'a> {
    numbers: HashMap<*const Vec<u8>, usize>,
    code: Vec<&'a Vec<u8>>,
}

impl<'a> Modules<'a> {
    fn of(launches: impl Iterator<Item = &'a RecordedLaunch>) -> Self {
        let mut modules = Self::default();
        for launch in launches {
            let next = modules.code.len();
            if *modules.numbers.entry(Arc::as_ptr(&launch.cubin)).or_insert(next) == next {
                modules.code.push(&launch.cubin);
            }
        }
        modules
    }
}

/// Pieces behind the words at the start.
struct Pieces {
    bytes: Vec<u8>,
}

impl Pieces {
    /// Appends a piece, and returns its offset.
    fn add(&mut self, piece: &[u8]) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        let first = self.bytes.len();
        self.bytes.extend_from_slice(piece);
        first as u64
    }

    /// Appends a zero-terminated text, and returns its offset.
    fn text(&mut self, text: &str) -> u64 {
        let bytes: Vec<u8> = text.bytes().take_while(|&byte| byte != 0).chain([0]).collect();
        self.add(&bytes)
    }

    fn words(&mut self, words: &[u64]) -> u64 {
        self.add(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
    }

    /// Appends a list of launches, in the form that `launch` of `driver.c` reads.
    fn launches(&mut self, launches: &[RecordedLaunch], modules: &Modules) -> u64 {
        let mut words = vec![launches.len() as u64];
        for RecordedLaunch { cubin, symbol, launch, arguments, maps } in launches {
            let module = modules.numbers.get(&Arc::as_ptr(cubin)).copied().unwrap_or_default();
            let head = [launch.blocks, launch.threads, launch.shared_bytes, arguments.len(), maps.len()];
            words.extend([module as u64, self.text(symbol)]);
            words.extend(head.map(|number| number as u64));
            words.extend(arguments.iter().flat_map(|&(buffer, first)| [buffer as u64, first as u64]));
            for map in maps {
                let [columns, rows] = map.extents;
                let numbers = [map.argument, map.dtype, columns, rows, map.row_bytes, map.shape[0], map.shape[1]];
                words.extend(numbers.map(|number| number as u64));
            }
        }
        self.words(&words)
    }

    fn tensors(&mut self, tensors: &[LibraryTensor]) -> u64 {
        let mut words = Vec::new();
        for LibraryTensor { buffer, first_byte, name, dtype, shape } in tensors {
            let extents: Vec<u64> = shape.iter().map(|&extent| extent as u64).collect();
            let (buffer, first, elements) = (*buffer as u64, *first_byte as u64, extents.iter().product());
            let texts = [self.text(name), self.text(dtype)];
            words.extend([buffer, first, elements, texts[0], texts[1], shape.len() as u64, self.words(&extents), 0]);
        }
        self.words(&words)
    }
}

impl CudaContents<'_> {
    /// Returns the library's data.
    pub(super) fn data(&self) -> LibraryData {
        let DeviceRecording { buffers, packing } = self.recorded;
        let modules = Modules::of(packing.iter().chain(self.launches));
        let table = HEAD + 2 * modules.code.len() + 4 * buffers.len();
        let mut pieces = Pieces { bytes: vec![0; 8 * table] };

        let mut words = Vec::new();
        for code in &modules.code {
            words.extend([pieces.add(code), code.len() as u64]);
        }
        let code_bytes = pieces.bytes.len() - 8 * table;
        let is_used = self.used();
        for (number, buffer) in buffers.iter().enumerate() {
            let kept = is_used.packing[number] || is_used.runs[number];
            let bytes = if kept { buffer.bytes as u64 } else { 0 };
            let content = if kept { &buffer.content[..] } else { &[] };
            words.extend([bytes, pieces.add(content), content.len() as u64, is_used.runs[number].into()]);
        }
        let constant_bytes = pieces.bytes.len() - 8 * table - code_bytes;

        let packing = pieces.launches(packing, &modules);
        let launches = pieces.launches(self.launches, &modules);
        let tensors = [&self.inputs, &self.outputs].map(|tensors| pieces.tensors(tensors));
        let [major, minor] = [self.sm / 10, self.sm % 10].map(u64::from);
        let counts = [modules.code.len(), buffers.len(), self.arena].map(|number| number as u64);
        let ends = [self.inputs.len(), self.outputs.len()].map(|number| number as u64);
        let head = [&[0, major, minor][..], &counts, &[packing, launches], &ends, &tensors].concat();
        let head = head.into_iter().chain([0; HEAD]).take(HEAD).chain(words);
        for (place, word) in pieces.bytes.chunks_exact_mut(8).zip(head) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        LibraryData { bytes: pieces.bytes, code_bytes, constant_bytes }
    }

    /// Returns which allocations launches and callers use.
    fn used(&self) -> UsedBuffers {
        let none = vec![false; self.recorded.buffers.len()];
        let mut used = UsedBuffers { packing: none.clone(), runs: none };
        for (launches, used) in [(&self.recorded.packing[..], &mut used.packing), (self.launches, &mut used.runs)] {
            launches.iter().flat_map(|launch| &launch.arguments).for_each(|&(buffer, _)| used[buffer] = true);
        }
        self.inputs.iter().chain(&self.outputs).for_each(|tensor| used.runs[tensor.buffer] = true);
        used.runs[self.arena] = true;
        used
    }
}

/// Use of each allocation while constants are packed, and in runs.
struct UsedBuffers {
    packing: Vec<bool>,
    runs: Vec<bool>,
}
