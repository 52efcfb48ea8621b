//! Shared libraries of ELF, 64 bits, x86-64 (System V ABI; Tool Interface Standard, "Executable and Linking Format", version 1.2).
//!
//! ```text
//! file header, program headers, .hash, .dynsym, .dynstr, .rodata, .weights    read only
//! .text                                                                       executable
//! .dynamic                                                                    writable while it is loaded
//! .shstrtab, section headers                                                  not in memory
//! ```
//!
//! Addresses are offsets in the file. There is nothing to relocate and nothing to import.

use std::io::{self, Write};

/// Segments begin at multiples of this.
const PAGE: u64 = 4096;
const HEADER_BYTES: u64 = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;
const SECTION_HEADER_BYTES: u64 = 64;
const SYMBOL_BYTES: u64 = 24;
const ENTRY_BYTES: u64 = 16;

/// What a library is to hold.
pub(super) struct Contents<'a> {
    /// The name by which programs that are linked with it look for it.
    pub(super) soname: &'a str,
    /// The names of its functions.
    pub(super) functions: &'a [String],
    /// Bytes of read-only data.
    pub(super) rodata: usize,
    /// Bytes of weights.
    pub(super) weights: usize,
}

/// Where everything is, of which the code must know; offsets in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    hash: u64,
    symbols: u64,
    strings: u64,
    pub(super) rodata: u64,
    pub(super) weights: u64,
    weights_end: u64,
    pub(super) text: u64,
}

/// A function: where it is behind the first byte of the text, and how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    pub(super) first: usize,
    pub(super) bytes: usize,
}

impl Places {
    pub(super) fn of(contents: &Contents) -> Self {
        let count = contents.functions.len() as u64;
        let hash = HEADER_BYTES + PROGRAM_HEADER_BYTES * PROGRAM_HEADERS as u64;
        let symbols = (hash + 4 * (2 + count + count + 1)).next_multiple_of(8);
        let strings = symbols + SYMBOL_BYTES * (count + 1);
        let rodata = (strings + names(contents).0.len() as u64).next_multiple_of(64);
        let weights = (rodata + contents.rodata as u64).next_multiple_of(PAGE);
        let weights_end = weights + contents.weights as u64;
        Self { hash, symbols, strings, rodata, weights, weights_end, text: weights_end.next_multiple_of(PAGE) }
    }
}

/// The strings of a library, and where the names of the library and of its functions are among them.
fn names(contents: &Contents) -> (Vec<u8>, Vec<u32>) {
    let (mut strings, mut firsts) = (vec![0], Vec::new());
    for name in std::iter::once(contents.soname).chain(contents.functions.iter().map(String::as_str)) {
        firsts.push(strings.len() as u32);
        strings.extend(name.as_bytes());
        strings.push(0);
    }
    (strings, firsts)
}

/// Writes a library: read-only data, weights in pieces, text, and the functions in the order of their names.
pub(super) fn write<'w>(
    contents: &Contents,
    rodata: &[u8],
    weights: impl Iterator<Item = &'w [u8]>,
    text: &[u8],
    functions: &[Function],
    out: &mut dyn Write,
) -> io::Result<()> {
    let places = Places::of(contents);
    let (strings, names) = names(contents);
    let text_end = places.text + text.len() as u64;
    let dynamic = dynamic(&places, names[0], strings.len());
    let dynamic_at = text_end.next_multiple_of(PAGE);
    let dynamic_end = dynamic_at + dynamic.len() as u64;
    let (section_names, sections) = sections(&places, strings.len(), text_end, (dynamic_at, dynamic_end));
    let sections_at = (dynamic_end + section_names.len() as u64).next_multiple_of(8);

    let mut file = Output { out, at: 0 };
    file.put(&file_header(sections_at, sections.len()))?;
    for header in program_headers(&places, text_end, (dynamic_at, dynamic_end)) {
        file.put(&header.bytes())?;
    }
    file.pad_to(places.hash)?;
    file.put(&hash_table(contents.functions))?;
    file.pad_to(places.symbols)?;
    file.put(&symbols(&places, &names[1..], functions))?;
    file.put(&strings)?;
    file.pad_to(places.rodata)?;
    file.put(rodata)?;
    file.pad_to(places.weights)?;
    for piece in weights {
        file.put(piece)?;
    }
    file.pad_to(places.text)?;
    file.put(text)?;
    file.pad_to(dynamic_at)?;
    file.put(&dynamic)?;
    file.put(&section_names)?;
    file.pad_to(sections_at)?;
    sections.iter().try_for_each(|section| file.put(&section.bytes()))
}

/// A file that is written from its first byte to its last.
struct Output<'a> {
    out: &'a mut dyn Write,
    at: u64,
}

impl Output<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn pad_to(&mut self, at: u64) -> io::Result<()> {
        let zeros = vec![0; at.saturating_sub(self.at) as usize];
        self.put(&zeros)
    }
}

fn file_header(sections_at: u64, sections: usize) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // A shared object for x86-64, of version 1.
    bytes.extend([3u16, 62].map(u16::to_le_bytes).concat());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend([0, HEADER_BYTES, sections_at].map(u64::to_le_bytes).concat());
    bytes.extend(0u32.to_le_bytes());
    let program_headers = [PROGRAM_HEADER_BYTES as u16, PROGRAM_HEADERS as u16];
    let section_headers = [SECTION_HEADER_BYTES as u16, sections as u16, sections as u16 - 1];
    bytes.extend((HEADER_BYTES as u16).to_le_bytes());
    bytes.extend(program_headers.map(u16::to_le_bytes).concat());
    bytes.extend(section_headers.map(u16::to_le_bytes).concat());
    bytes
}

const PROGRAM_HEADERS: usize = 6;
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const STACK: u32 = 0x6474_e551;
const RELRO: u32 = 0x6474_e552;
const EXECUTABLE: u32 = 1;
const WRITABLE: u32 = 2;
const READABLE: u32 = 4;

/// Bytes of the file in memory.
struct Segment {
    kind: u32,
    rights: u32,
    first: u64,
    end: u64,
    align: u64,
}

impl Segment {
    fn bytes(&self) -> Vec<u8> {
        let size = self.end - self.first;
        let mut bytes = [self.kind, self.rights].map(u32::to_le_bytes).concat();
        bytes.extend([self.first, self.first, self.first, size, size, self.align].map(u64::to_le_bytes).concat());
        bytes
    }
}

fn program_headers(places: &Places, text_end: u64, (dynamic, dynamic_end): (u64, u64)) -> [Segment; PROGRAM_HEADERS] {
    let segment = |kind, rights, first, end, align| Segment { kind, rights, first, end, align };
    let data = READABLE | WRITABLE;
    [
        segment(LOAD, READABLE, 0, places.weights_end, PAGE),
        segment(LOAD, READABLE | EXECUTABLE, places.text, text_end, PAGE),
        segment(LOAD, data, dynamic, dynamic_end, PAGE),
        segment(DYNAMIC, data, dynamic, dynamic_end, 8),
        // No stack is executable.
        segment(STACK, data, 0, 0, 16),
        // Read only once it is loaded: all of the page, behind which there is nothing.
        segment(RELRO, READABLE, dynamic, dynamic_end, 1),
    ]
}

/// Hash table of symbols, one bucket for each.
fn hash_table(functions: &[String]) -> Vec<u8> {
    let count = functions.len();
    let (mut buckets, mut chains) = (vec![0u32; count], vec![0u32; count + 1]);
    for (number, name) in functions.iter().enumerate() {
        let bucket = &mut buckets[hash(name) as usize % count];
        chains[number + 1] = *bucket;
        *bucket = number as u32 + 1;
    }
    let sizes = [count as u32, count as u32 + 1];
    sizes.iter().chain(&buckets).chain(&chains).flat_map(|word| word.to_le_bytes()).collect()
}

/// System V ABI, "Hash Table".
fn hash(name: &str) -> u32 {
    name.bytes().fold(0u32, |hash, byte| {
        let sum = (hash << 4).wrapping_add(byte.into());
        let high = sum & 0xf000_0000;
        (sum ^ high >> 24) & !high
    })
}

fn symbols(places: &Places, names: &[u32], functions: &[Function]) -> Vec<u8> {
    const GLOBAL_FUNCTION: u8 = 1 << 4 | 2;
    let mut bytes = vec![0; SYMBOL_BYTES as usize];
    for (name, function) in names.iter().zip(functions) {
        bytes.extend(name.to_le_bytes());
        bytes.extend([GLOBAL_FUNCTION, 0]);
        bytes.extend((TEXT_SECTION as u16).to_le_bytes());
        bytes.extend([places.text + function.first as u64, function.bytes as u64].map(u64::to_le_bytes).concat());
    }
    bytes
}

/// What the loader reads.
fn dynamic(places: &Places, soname: u32, strings: usize) -> Vec<u8> {
    // Tags, with their values.
    let entries = [
        [14, soname.into()],
        [4, places.hash],
        [5, places.strings],
        [6, places.symbols],
        // Bytes of strings, of a symbol; the end.
        [10, strings as u64],
        [11, SYMBOL_BYTES],
        [0, 0],
    ];
    entries.iter().flatten().flat_map(|word| word.to_le_bytes()).collect()
}

/// What linkers and people look at; `link`, `info` and the size of an entry are as the kind wants them.
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    first: u64,
    bytes: u64,
    link: u32,
    info: u32,
    align: u64,
    entry: u64,
}

/// Number of the section of code.
const TEXT_SECTION: usize = 6;
const CONTENT: u32 = 1;
const STRINGS: u32 = 3;
const WRITE: u64 = 1;
const ALLOC: u64 = 2;
const EXECUTE: u64 = 4;

impl Section {
    fn bytes(&self) -> Vec<u8> {
        let address = if self.flags == 0 { 0 } else { self.first };
        let mut bytes = [self.name, self.kind].map(u32::to_le_bytes).concat();
        bytes.extend([self.flags, address, self.first, self.bytes].map(u64::to_le_bytes).concat());
        bytes.extend([self.link, self.info].map(u32::to_le_bytes).concat());
        bytes.extend([self.align, self.entry].map(u64::to_le_bytes).concat());
        bytes
    }
}

/// The names of sections, and their headers.
fn sections(
    places: &Places,
    strings: usize,
    text_end: u64,
    (dynamic, dynamic_end): (u64, u64),
) -> (Vec<u8>, Vec<Section>) {
    const HASH: u32 = 5;
    const DYNAMIC: u32 = 6;
    const SYMBOLS: u32 = 11;
    let strings_end = places.strings + strings as u64;
    // Name, kind, flags, from, to, the section that it refers to, info, alignment, bytes of an entry.
    type Row = (&'static str, u32, u64, u64, u64, u32, u32, u64, u64);
    let rows: [Row; 8] = [
        (".hash", HASH, ALLOC, places.hash, places.symbols, 2, 0, 8, 4),
        (".dynsym", SYMBOLS, ALLOC, places.symbols, places.strings, 3, 1, 8, SYMBOL_BYTES),
        (".dynstr", STRINGS, ALLOC, places.strings, strings_end, 0, 0, 1, 0),
        (".rodata", CONTENT, ALLOC, places.rodata, places.weights, 0, 0, 64, 0),
        (".weights", CONTENT, ALLOC, places.weights, places.weights_end, 0, 0, PAGE, 0),
        (".text", CONTENT, ALLOC | EXECUTE, places.text, text_end, 0, 0, 64, 0),
        (".dynamic", DYNAMIC, ALLOC | WRITE, dynamic, dynamic_end, 3, 0, 8, ENTRY_BYTES),
        (".shstrtab", STRINGS, 0, dynamic_end, dynamic_end, 0, 0, 1, 0),
    ];

    let (mut names, mut sections) = (vec![0], Vec::new());
    let none = Section { name: 0, kind: 0, flags: 0, first: 0, bytes: 0, link: 0, info: 0, align: 0, entry: 0 };
    sections.push(none);
    for (text, kind, flags, first, end, link, info, align, entry) in rows {
        let (name, bytes) = (names.len() as u32, end - first);
        sections.push(Section { name, kind, flags, first, bytes, link, info, align, entry });
        names.extend(text.as_bytes());
        names.push(0);
    }
    if let Some(last) = sections.last_mut() {
        last.bytes = names.len() as u64;
    }
    (names, sections)
}
