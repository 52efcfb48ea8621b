//! The workloads that are compared.

use anyhow::{Context, Result};
use autotune::Network;
use autotune_schedules::workload::Epilogue;
use autotune_schedules::{Conv2d, Matmul, Workload};

/// A workload, and the suite and name it is shown under.
pub(crate) struct Subject {
    pub(crate) suite: String,
    pub(crate) name: String,
    pub(crate) workload: Workload,
}

const ALL: [&str; 6] = ["resnet18", "resnet18-plain", "matmul", "mobilenet", "vgg", "extra"];

const MATMUL: [&str; 6] = [
    "matmul:m=1024,n=1024,k=1024",
    "matmul:m=512,n=512,k=512",
    "matmul:m=128,n=768,k=768",
    "matmul:m=128,n=3072,k=768",
    "matmul:m=197,n=768,k=3072",
    "matmul:m=1,n=1000,k=512",
];

/// Squares that fill a GPU.
const SQUARES: [&str; 3] =
    ["matmul:m=1024,n=1024,k=1024", "matmul:m=4096,n=4096,k=4096", "matmul:m=8192,n=8192,k=8192"];

/// Depthwise and pointwise layers of MobileNet (Howard et al., 2017).
const MOBILENET: [&str; 9] = [
    "conv2d:c=32,h=112,w=112,o=32,k=3,p=1,g=32",
    "conv2d:c=128,h=56,w=56,o=128,k=3,p=1,g=128",
    "conv2d:c=256,h=28,w=28,o=256,k=3,p=1,g=256",
    "conv2d:c=512,h=14,w=14,o=512,k=3,p=1,g=512",
    "conv2d:c=32,h=112,w=112,o=64,k=1",
    "conv2d:c=128,h=56,w=56,o=128,k=1",
    "conv2d:c=256,h=28,w=28,o=256,k=1",
    "conv2d:c=512,h=14,w=14,o=512,k=1",
    "conv2d:c=512,h=7,w=7,o=1024,k=1",
];

/// The distinct layers of VGG-16 (Simonyan and Zisserman, 2015).
const VGG: [&str; 9] = [
    "conv2d:c=3,h=224,w=224,o=64,k=3,p=1",
    "conv2d:c=64,h=224,w=224,o=64,k=3,p=1",
    "conv2d:c=64,h=112,w=112,o=128,k=3,p=1",
    "conv2d:c=128,h=112,w=112,o=128,k=3,p=1",
    "conv2d:c=128,h=56,w=56,o=256,k=3,p=1",
    "conv2d:c=256,h=56,w=56,o=256,k=3,p=1",
    "conv2d:c=256,h=28,w=28,o=512,k=3,p=1",
    "conv2d:c=512,h=28,w=28,o=512,k=3,p=1",
    "conv2d:c=512,h=14,w=14,o=512,k=3,p=1",
];

const EXTRA: [&str; 2] = ["conv2d:c=64,h=28,w=28,o=64,k=5,p=2", "conv2d:c=128,h=28,w=28,o=128,k=3,p=2,d=2"];

/// The workloads of suites, and workloads given as text; all of them exact if `exact`, and with further words `with`.
pub(crate) fn subjects(words: &[String], exact: bool, with: Option<&str>) -> Result<Vec<Subject>> {
    let words = words.iter().flat_map(|word| if word == "all" { ALL.to_vec() } else { vec![word.as_str()] });
    let mut subjects: Vec<Subject> = words.map(of_word).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    for subject in &mut subjects {
        subject.workload = subject.workload.with_exact(exact || subject.workload.is_exact());
        if let Some(with) = with {
            subject.workload = format!("{},{with}", subject.workload).parse()?;
        }
    }
    Ok(subjects)
}

fn of_word(word: &str) -> Result<Vec<Subject>> {
    Ok(match word {
        "matmul" => of_texts(word, &MATMUL)?,
        "squares" => of_texts(word, &SQUARES)?,
        "mobilenet" => of_texts(word, &MOBILENET)?,
        "vgg" => of_texts(word, &VGG)?,
        "extra" => of_texts(word, &EXTRA)?,
        "resnet18" => convolutions(word, |epilogue| epilogue),
        "resnet18-plain" => convolutions(word, |_| Epilogue::default()),
        text => {
            of_texts("given", &[text]).with_context(|| format!("'{text}' is no suite ({}) either", ALL.join(", ")))?
        }
    })
}

fn of_texts(suite: &str, texts: &[&str]) -> Result<Vec<Subject>> {
    let subject = |text: &&str| {
        let workload: Workload = text.parse()?;
        Ok(Subject { suite: suite.into(), name: short_name(&workload), workload })
    };
    texts.iter().map(subject).collect()
}

/// ResNet-18's convolutions: C1 to C12.
fn convolutions(suite: &str, epilogue: fn(Epilogue) -> Epilogue) -> Vec<Subject> {
    let tasks = Network::resnet18().tasks.into_iter().filter(|t| t.workload.sizes::<Conv2d>().is_some());
    let subject = |task: autotune::Task| {
        let workload = task.workload.with_epilogue(epilogue(task.workload.epilogue()));
        Subject { suite: suite.into(), name: task.name, workload }
    };
    tasks.map(subject).collect()
}

/// Such as `56x56 64>128 3x3` and `128x768x768` (m, n, k).
fn short_name(workload: &Workload) -> String {
    if let Some(m) = workload.sizes::<Matmul>() {
        return format!("{}x{}x{}", m.m, m.n, m.k);
    }
    let Some(c) = workload.sizes::<Conv2d>() else { return workload.to_string() };
    let mut name = format!("{}x{} {}>{} {}x{}", c.h, c.w, c.c, c.o, c.kh, c.kw);
    if c.stride != [1, 1] {
        name += &format!(" s{}", c.stride[0]);
    }
    if c.dilation != [1, 1] {
        name += &format!(" d{}", c.dilation[0]);
    }
    if c.groups > 1 {
        name += &format!(" g{}", c.groups);
    }
    name
}
