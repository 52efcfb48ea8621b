//! Object files and static libraries, whose parts a linker places (System V ABI, AMD64 supplement,
//! section 4.4; archives with an index of symbols as `ar` writes them).

use std::io::{self, Write};

use object::write::{Object, Relocation, SectionId, StandardSection, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind, SymbolScope, elf,
};

use super::error::LibraryError;
use super::format::{ARCHIVE_START, LINE, LibraryContents, LibraryParts, PAGE, PartOffsets};

/// Size of a displacement in bytes.
const DISPLACEMENT: usize = 4;

/// Returns an object file of parts whose code addresses each other by their offsets in a shared
/// library.
pub(super) fn object(
    contents: &LibraryContents,
    parts: LibraryParts<'_>,
    places: PartOffsets,
) -> Result<Vec<u8>, LibraryError> {
    let mut file = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let text = file.section_id(StandardSection::Text);
    file.append_section_data(text, parts.text, LINE);
    let rodata = file.section_id(StandardSection::ReadOnlyData);
    file.append_section_data(rodata, parts.rodata, LINE);
    let weights = file.add_section(Vec::new(), b".rodata.weights".to_vec(), SectionKind::ReadOnlyData);
    parts.weights.enumerate().for_each(|(number, piece)| {
        file.append_section_data(weights, piece, if number == 0 { PAGE } else { 1 });
    });
    // The empty section tells linkers that the stack need not be executable.
    file.add_section(Vec::new(), b".note.GNU-stack".to_vec(), SectionKind::Other);

    for (name, function) in contents.functions.iter().zip(parts.functions) {
        file.add_symbol(Symbol {
            name: name.clone().into_bytes(),
            value: function.first as u64,
            size: function.bytes as u64,
            kind: SymbolKind::Text,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: SymbolSection::Section(text),
            flags: SymbolFlags::None,
        });
    }

    let sections = [
        (places.rodata, contents.rodata as u64, rodata),
        (places.weights, contents.weights as u64, weights),
        (places.text, parts.text.len() as u64, text),
    ];
    for &at in parts.references {
        let end = at + DISPLACEMENT;
        let displacement = i32::from_le_bytes(*parts.text[at..].first_chunk().unwrap_or(&[0; DISPLACEMENT]));
        let address = places.text as i64 + end as i64 + i64::from(displacement);
        let (section, offset) = place(&sections, address);

        // Parts of one section keep their distance.
        if section != text {
            let symbol = file.section_symbol(section);
            let flags = RelocationFlags::Elf { r_type: elf::R_X86_64_PC32 };
            // The displacement counts from its end, a relocation from its first byte.
            let addend = offset - DISPLACEMENT as i64;
            file.add_relocation(text, Relocation { offset: at as u64, symbol, addend, flags })?;
        }
    }
    Ok(file.write()?)
}

/// Returns the section of an address, and the offset there.
fn place(sections: &[(u64, u64, SectionId); 3], address: i64) -> (SectionId, i64) {
    // The address of weights that are empty is that of the code, and nothing is read there.
    let find = |&(first, bytes, section): &(u64, u64, SectionId)| {
        let offset = address - first as i64;
        (0..bytes as i64).contains(&offset).then_some((section, offset))
    };
    sections.iter().find_map(find).unwrap_or((sections[2].2, 0))
}

/// Writes an archive of one object file, with an index of its functions.
pub(super) fn write_archive(member: &str, functions: &[String], object: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let names: Vec<u8> = functions.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect();
    let index_bytes = (4 + 4 * functions.len() + names.len()).next_multiple_of(2);
    let long_names = format!("{member}/\n");
    let long_bytes = long_names.len().next_multiple_of(2);
    let object_at = ARCHIVE_START.len() + 2 * HEADER_BYTES + index_bytes + long_bytes;

    out.write_all(ARCHIVE_START)?;
    out.write_all(&header("/", index_bytes))?;
    out.write_all(&(functions.len() as u32).to_be_bytes())?;
    for _ in functions {
        out.write_all(&(object_at as u32).to_be_bytes())?;
    }
    out.write_all(&names)?;
    out.write_all(&[0][..index_bytes - 4 - 4 * functions.len() - names.len()])?;

    out.write_all(&header("//", long_bytes))?;
    out.write_all(long_names.as_bytes())?;
    out.write_all(&b"\n"[..long_bytes - long_names.len()])?;
    out.write_all(&header("/0", object.len()))?;
    out.write_all(object)?;
    out.write_all(&b"\n"[..object.len() % 2])
}

const HEADER_BYTES: usize = 60;

/// Returns the header of an archive's member, without date and owner.
fn header(name: &str, bytes: usize) -> Vec<u8> {
    format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{bytes:<10}`\n", 0, 0, 0, "100644").into_bytes()
}
