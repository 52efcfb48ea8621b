//! The exported file as seen by linkers, loaders and C programs.
//!
//! Tests that need a C compiler or Python are skipped with a message if it is missing;
//! `AUTOTUNE_REQUIRE=cc,python3` makes that a failure.

use std::fs;
use std::path::Path;
use std::process::Command;

use autotune_network::operators::Transpose;
use autotune_network::{DType, Graph, Library, LibraryFormat, rewrite, zoo};
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, Sym};

use super::compiled;
use super::loaded::Loaded;

/// Reports a missing tool; fails if `AUTOTUNE_REQUIRE` lists it.
fn missing(tool: &str) {
    let required = std::env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name != tool), "{tool} is required");
    eprintln!("skipped, {tool} is missing");
}

/// The file has no imports or relocations, no page is writable and executable, and all exports are
/// code.
#[test]
fn a_library_imports_nothing_and_exports_its_functions() {
    let graph = rewrite(&zoo::graph("dqn").unwrap()).unwrap();
    let Some(network) = compiled(&graph, 2) else { return };
    let library = Loaded::of(&network).unwrap();
    let bytes = fs::read(&library.file).unwrap();
    let data = &*bytes;
    let header = FileHeader64::<Endianness>::parse(data).unwrap();
    let endian = header.endian().unwrap();
    assert_eq!((header.e_type(endian), header.e_machine(endian)), (elf::ET_DYN, elf::EM_X86_64));

    let segments = header.program_headers(endian, data).unwrap();
    let mut loaded = Vec::new();
    for segment in segments {
        let (kind, flags) = (segment.p_type(endian), segment.p_flags(endian));
        assert_ne!((flags.0 & elf::PF_W.0 != 0, flags.0 & elf::PF_X.0 != 0), (true, true), "{kind:?}");
        if kind == elf::PT_LOAD {
            assert!(
                segment.p_offset(endian).is_multiple_of(4096) && segment.p_vaddr(endian) == segment.p_offset(endian)
            );
            loaded.push(segment.p_offset(endian)..segment.p_offset(endian) + segment.p_filesz(endian));
        }
    }
    assert!(segments.iter().any(|segment| segment.p_type(endian) == elf::PT_GNU_STACK));
    assert!(loaded.is_sorted_by_key(|range| range.start) && loaded.windows(2).all(|two| two[0].end <= two[1].start));

    let dynamic = segments.iter().find_map(|segment| segment.dynamic(endian, data).unwrap()).unwrap();
    let tags: Vec<_> = dynamic.iter().map(|entry| entry.d_tag(endian)).collect();
    for tag in [elf::DT_NEEDED, elf::DT_RELA, elf::DT_REL, elf::DT_JMPREL, elf::DT_TEXTREL, elf::DT_INIT] {
        assert!(!tags.contains(&tag), "{tag:?}");
    }

    let sections = header.sections(endian, data).unwrap();
    let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM).unwrap();
    let (_, text) = sections.section_by_name(endian, b".text").unwrap();
    let code = text.sh_addr(endian)..text.sh_addr(endian) + text.sh_size(endian);
    let mut names = Vec::new();
    for symbol in symbols.iter().skip(1) {
        let (first, size) = (symbol.st_value(endian), symbol.st_size(endian));
        assert!(symbol.st_type() == elf::STT_FUNC && code.contains(&first) && size > 0 && first + size <= code.end);
        names.push(String::from_utf8(symbols.symbol_name(endian, symbol).unwrap().to_vec()).unwrap());
    }
    assert!(names.iter().all(|name| name.starts_with("a_network_")) && names.len() == 21, "{names:?}");
}

/// Compiles a program with a library; none if there is no compiler.
pub(crate) fn built(library: &Loaded, source: &str, words: &[&str]) -> Option<Command> {
    let dir = library.dir.path();
    fs::write(dir.join("program.c"), source).unwrap();
    let mut compiler = Command::new(std::env::var("CC").unwrap_or("cc".into()));
    compiler.args(words).args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-o", "program", "program.c"]);
    compiler.args(["-I.", "-L."]).arg(format!("-l{}", library.name));
    let compiled = compiler.arg("-Wl,-rpath,$ORIGIN").current_dir(dir).output();
    let Ok(compiled) = compiled else {
        missing("cc");
        return None;
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Some(Command::new(dir.join("program")))
}

/// Returns the numbers that a program prints, one `name = number` in each line.
fn printed(program: &mut Command) -> Vec<f32> {
    let ended = program.output().unwrap();
    let [out, errors] = [ended.stdout, ended.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(ended.status.success(), "{errors}");
    out.lines().map(|line| line.split_once(" = ").unwrap().1.parse().unwrap()).collect()
}

/// The example programs in C and Python print the library's results.
#[test]
fn programs_run_a_library() {
    let graph = rewrite(&zoo::graph("dqn").unwrap()).unwrap();
    let Some(network) = compiled(&graph, 2) else { return };
    let library = Loaded::named(&network, "dqn").unwrap();
    let image = (0..library.number_of("input_elements", 0)).map(|i| (i % 7) as f32 / 7.0).collect();
    let wanted = library.results(&[image], None).remove(0);

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/compiled_network");
    let source = fs::read_to_string(folder.join("linked.c")).unwrap();
    if let Some(mut program) = built(&library, &source, &["-std=c11"]) {
        assert_eq!(printed(&mut program), wanted);
    }
    if Command::new("python3").arg("--version").output().is_err() {
        return missing("python3");
    }
    assert_eq!(printed(Command::new("python3").arg(folder.join("loaded.py")).arg(&library.file)), wanted);
}

/// Programs that contain an object file or a static library print what those with a shared library
/// do; linkers have nothing to warn of, also where code has fixed addresses.
#[test]
fn programs_contain_a_library() {
    let graph = rewrite(&zoo::graph("dqn").unwrap()).unwrap();
    let Some(network) = compiled(&graph, 2) else { return };
    let shared = Loaded::named(&network, "dqn").unwrap();
    let image = (0..shared.number_of("input_elements", 0)).map(|i| (i % 7) as f32 / 7.0).collect();
    let wanted = shared.results(&[image], None).remove(0);
    let linked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/compiled_network/linked.c");

    let library = Library::of(&network, "dqn", "").unwrap();
    for format in [LibraryFormat::Object, LibraryFormat::Archive] {
        for words in [&["-fPIE", "-pie"][..], &["-fno-pie", "-no-pie"]] {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join(format!("libdqn.{}", format.extension()));
            library.write(format, &mut fs::File::create(&file).unwrap()).unwrap();
            fs::write(dir.path().join("dqn.h"), library.header()).unwrap();
            let mut compiler = Command::new(std::env::var("CC").unwrap_or("cc".into()));
            compiler.args(words).arg("-Wl,--fatal-warnings").arg("-I.").arg(&linked).arg(&file).args(["-o", "program"]);
            let Ok(ended) = compiler.current_dir(dir.path()).output() else { return missing("cc") };
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
            assert_eq!(printed(&mut Command::new(dir.path().join("program"))), wanted, "{format:?} {words:?}");
        }
    }
}

/// The header is valid C and C++ for any names of inputs.
#[test]
fn headers_are_c_and_cpp() {
    let mut graph = Graph::new("names");
    let names = ["*/ int", "/*", "a\nb", "@NAME@", "back\\\n", "??/", "\u{e9}", ""];
    for name in names {
        let x = graph.input(name, DType::F32, &[2, 3]).unwrap();
        let y = graph.add(name, Transpose(vec![1, 0]), &[x]).unwrap();
        graph.output(name, y);
    }
    let Some(network) = compiled(&graph, 1) else { return };
    let library = Loaded::of(&network).unwrap();
    let source = "#include \"a_network.h\"\nint main(void) { return a_network_error(0) == NULL; }\n";
    for words in [&["-std=c99"][..], &["-x", "c++", "-std=c++11"]] {
        let Some(mut program) = built(&library, source, words) else { return };
        assert!(program.status().unwrap().success(), "{words:?}");
    }
    let header = fs::read_to_string(Path::new(library.dir.path()).join("a_network.h")).unwrap();
    assert!(header.contains("inputs[3]: f32 2 x 3, 6 float: @NAME@") && !header.contains("*/ int"), "{header}");
}
