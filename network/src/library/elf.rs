//! ELF shared libraries for 64-bit x86-64 (System V ABI; Tool Interface Standard, "Executable and
//! Linking Format", version 1.2).
//!
//! ```text
//! file header, program headers, .hash, .dynsym, .dynstr, .rodata, .weights  read only
//! .text                                                                     executable
//! .dynamic                                                                  writable while loading
//! .shstrtab, section headers                                                not in memory
//! ```
//!
//! Addresses equal file offsets. There are no relocations and no imports.

use std::io::{self, Write};
use std::ops::Range;

use object::Endianness;
use object::elf;
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, Sym, TwoPhase};
use object::write::{StreamingBuffer, StringId};

use super::error::LibraryError;
use super::format::{Format, LINE, LibraryContents, LibraryParts, PAGE, PartOffsets};

type Writer<'a> = object::write::elf::Writer<'a, TwoPhase>;

const SEGMENTS: u32 = 6;
const DYNAMIC_ENTRIES: usize = 7;

/// The ELF file format.
pub(super) struct Elf;

impl Format for Elf {
    fn places(&self, contents: &LibraryContents) -> Result<PartOffsets, LibraryError> {
        let mut nothing = Vec::new();
        Ok(Reserved::of(&mut writer(&mut nothing), contents)?.places)
    }

    fn write(&self, contents: &LibraryContents, parts: LibraryParts<'_>, out: &mut dyn Write) -> io::Result<()> {
        let mut buffer = StreamingBuffer::new(out);
        write(&mut writer(&mut buffer), contents, parts).map_err(io::Error::other)?;
        buffer.result()
    }
}

fn writer(buffer: &mut dyn object::write::WritableBuffer) -> Writer<'_> {
    Writer::new(Endianness::Little, true, buffer)
}

/// Ranges of the file up to the code.
struct Reserved {
    places: PartOffsets,
    weights_end: u64,
    hash: u64,
    symbols: u64,
    strings: u64,
    /// Names of the library and of its functions.
    soname: StringId,
    names: Vec<StringId>,
}

impl Reserved {
    fn of<'c>(writer: &mut Writer<'c>, contents: &'c LibraryContents) -> Result<Self, object::write::Error> {
        writer.reserve_file_header();
        writer.reserve_program_headers(SEGMENTS);
        let soname = writer.add_dynamic_string(contents.soname.as_bytes());
        let names = contents.functions.iter().map(|name| writer.add_dynamic_string(name.as_bytes())).collect();
        for _ in contents.functions {
            writer.reserve_dynamic_symbol_index();
        }

        let count = contents.functions.len() as u32;
        let hash = writer.reserve_hash(count, count + 1);
        let symbols = writer.reserve_dynsym();
        let strings = writer.reserve_dynstr()?;
        let rodata = writer.reserve(contents.rodata as u64, LINE);
        let weights = writer.reserve(contents.weights as u64, PAGE);
        let weights_end = writer.reserved_len();
        let places = PartOffsets { rodata, weights, text: writer.reserve(0, PAGE) };
        Ok(Self { places, weights_end, hash, symbols, strings, soname, names })
    }

    /// Returns the ranges of data, weights and code, with section names and alignment.
    fn sections(&self, contents: &LibraryContents, text: &Range<u64>) -> [(&'static [u8], Range<u64>, u64); 3] {
        let PartOffsets { rodata, weights, .. } = self.places;
        [
            (b".rodata", rodata..rodata + contents.rodata as u64, LINE),
            (b".weights", weights..self.weights_end, PAGE),
            (b".text", text.clone(), LINE),
        ]
    }
}

// All ranges are reserved first, since headers at the start refer to ranges after them.
fn write<'c>(
    writer: &mut Writer<'c>,
    contents: &'c LibraryContents,
    parts: LibraryParts<'_>,
) -> Result<(), object::write::Error> {
    let reserved = Reserved::of(writer, contents)?;
    let text = writer.reserve(parts.text.len() as u64, 1)..writer.reserved_len();
    let dynamic = writer.reserve(0, PAGE);
    let dynamic = writer.reserve_dynamic(DYNAMIC_ENTRIES).max(dynamic)..writer.reserved_len();
    let sections = reserved.sections(contents, &text);

    writer.reserve_hash_section_index();
    writer.reserve_dynsym_section_index();
    writer.reserve_dynstr_section_index();
    let named = sections.each_ref().map(|(name, ..)| (writer.add_section_name(name), writer.reserve_section_index()));
    writer.reserve_dynamic_section_index();
    writer.reserve_shstrtab_section_index();
    writer.reserve_shstrtab()?;
    writer.reserve_section_headers();

    let (e_type, e_machine) = (elf::ET_DYN, elf::EM_X86_64);
    writer.write_file_header(&FileHeader { e_type, e_machine, ..FileHeader::default() })?;
    writer.write_align_program_headers();
    program_headers(&reserved, &text, &dynamic).iter().for_each(|header| writer.write_program_header(header));
    write_symbols(writer, &reserved, contents, &parts, named[2].1.0);
    writer.pad_until(reserved.places.rodata);
    writer.write(parts.rodata);
    writer.pad_until(reserved.places.weights);
    parts.weights.for_each(|piece| writer.write(piece));
    writer.pad_until(text.start);
    writer.write(parts.text);
    writer.pad_until(dynamic.start);
    write_dynamic(writer, &reserved)?;

    writer.write_shstrtab();
    writer.write_null_section_header();
    writer.write_hash_section_header(reserved.hash);
    writer.write_dynsym_section_header(reserved.symbols, 1);
    writer.write_dynstr_section_header(reserved.strings);
    for ((name, _), (_, range, align)) in named.into_iter().zip(sections) {
        let sh_flags = if range == text { elf::SHF_ALLOC | elf::SHF_EXECINSTR } else { elf::SHF_ALLOC };
        writer.write_section_header(&SectionHeader {
            sh_name: writer.section_name_offset(Some(name)),
            sh_type: elf::SHT_PROGBITS,
            sh_flags,
            sh_addr: range.start,
            sh_offset: range.start,
            sh_size: range.end - range.start,
            sh_addralign: align,
            ..SectionHeader::default()
        });
    }
    writer.write_dynamic_section_header(dynamic.start);
    writer.write_shstrtab_section_header();
    Ok(())
}

fn program_headers(reserved: &Reserved, text: &Range<u64>, dynamic: &Range<u64>) -> [ProgramHeader; SEGMENTS as usize] {
    let segment = |p_type, p_flags, range: &Range<u64>, p_align| {
        let (first, bytes) = (range.start, range.end - range.start);
        let [p_offset, p_vaddr, p_paddr] = [first; 3];
        ProgramHeader { p_type, p_flags, p_offset, p_vaddr, p_paddr, p_filesz: bytes, p_memsz: bytes, p_align }
    };
    let (read, data) = (elf::PF_R, elf::PF_R | elf::PF_W);
    [
        segment(elf::PT_LOAD, read, &(0..reserved.weights_end), PAGE),
        segment(elf::PT_LOAD, read | elf::PF_X, text, PAGE),
        segment(elf::PT_LOAD, data, dynamic, PAGE),
        segment(elf::PT_DYNAMIC, data, dynamic, 8),
        // The stack need not be executable.
        segment(elf::PT_GNU_STACK, data, &(0..0), 16),
        // The dynamic section becomes read-only after loading. It fills its page alone.
        segment(elf::PT_GNU_RELRO, read, dynamic, 1),
    ]
}

/// Writes hash table, symbols and names; `section` is the index of the functions' section.
fn write_symbols(
    writer: &mut Writer,
    reserved: &Reserved,
    contents: &LibraryContents,
    parts: &LibraryParts<'_>,
    section: u32,
) {
    let count = contents.functions.len() as u32;
    // Symbol 0 is the null symbol without a name.
    let name = |symbol: u32| contents.functions.get(symbol.checked_sub(1)? as usize);
    writer.write_hash(count, count + 1, |symbol| name(symbol).map(|name| elf::hash(name.as_bytes())));
    writer.write_null_dynamic_symbol();
    for (&name, function) in reserved.names.iter().zip(parts.functions) {
        writer.write_dynamic_symbol(&Sym {
            section: Some(section),
            st_name: writer.dynamic_string_offset(Some(name)),
            st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, elf::STT_FUNC),
            st_other: elf::SymbolOther(0),
            st_shndx: elf::SHN_UNDEF,
            st_value: reserved.places.text + function.first as u64,
            st_size: function.bytes as u64,
        });
    }
    writer.write_dynstr();
}

/// Writes the dynamic section, which the loader reads.
fn write_dynamic(writer: &mut Writer, reserved: &Reserved) -> Result<(), object::write::Error> {
    let (strings, symbol) = (writer.dynstr_len().into(), size_of::<elf::Sym64<Endianness>>() as u64);
    writer.write_align_dynamic();
    writer.write_dynamic_string(elf::DT_SONAME, reserved.soname)?;
    writer.write_dynamic(elf::DT_HASH, reserved.hash)?;
    writer.write_dynamic(elf::DT_STRTAB, reserved.strings)?;
    writer.write_dynamic(elf::DT_SYMTAB, reserved.symbols)?;
    writer.write_dynamic(elf::DT_STRSZ, strings)?;
    writer.write_dynamic(elf::DT_SYMENT, symbol)?;
    writer.write_dynamic(elf::DT_NULL, 0)
}
