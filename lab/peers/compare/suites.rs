//! Workloads that are compared, by suite.

use anyhow::{Context, Result};
use autotune::Network;
use autotune_workloads::{Conv2d, Epilogue, Matmul, Workload};

/// Workload with its suite and its name in the tables.
pub(crate) struct Subject {
    pub(crate) suite: String,
    pub(crate) name: String,
    pub(crate) workload: Workload,
}

const ALL: [&str; 7] = ["resnet18", "resnet18-plain", "matmul", "mobilenet", "vgg", "extra", "operators"];

const MATMUL: [&str; 6] = [
    "matmul:m=1024,n=1024,k=1024",
    "matmul:m=512,n=512,k=512",
    "matmul:m=128,n=768,k=768",
    "matmul:m=128,n=3072,k=768",
    "matmul:m=197,n=768,k=3072",
    "matmul:m=1,n=1000,k=512",
];

/// Square products that fill a GPU.
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

/// Distinct layers of VGG-16 (Simonyan and Zisserman, 2015).
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

/// Operators that are not single contractions, one suite each. The shapes are from known networks,
/// within the caches and beyond them.
const OPERATORS: [(&str, [&str; 10]); 9] = [
    ("softmax", SOFTMAX),
    ("log_softmax", LOG_SOFTMAX),
    ("layer_norm", LAYER_NORM),
    ("rms_norm", RMS_NORM),
    ("pool2d", POOL2D),
    ("reduce", REDUCE),
    ("gelu", GELU),
    ("transpose", TRANSPOSE),
    ("attention", ATTENTION),
];

/// Shapes of classifiers, vocabularies, attention scores of BERT, ViT, Swin and GPT-2, and the
/// pixels of a segmentation.
const SOFTMAX: [&str; 10] = [
    "softmax:m=1,n=1000",
    "softmax:m=64,n=1000",
    "softmax:m=1,n=50257",
    "softmax:m=12,n=1024",
    "softmax:m=1536,n=128",
    "softmax:m=2364,n=197",
    "softmax:m=9408,n=49",
    "softmax:m=6144,n=512",
    "softmax:m=12288,n=1024",
    "softmax:m=1,n=21,k=16641",
];

/// Shapes of classifiers, characters of speech, and words of language models.
const LOG_SOFTMAX: [&str; 10] = [
    "log_softmax:m=128,n=10",
    "log_softmax:m=500,n=29",
    "log_softmax:m=1,n=1000",
    "log_softmax:m=128,n=1000",
    "log_softmax:m=20,n=10000",
    "log_softmax:m=700,n=10000",
    "log_softmax:m=128,n=30522",
    "log_softmax:m=1,n=50257",
    "log_softmax:m=16,n=50257",
    "log_softmax:m=128,n=50257",
];

/// Shapes of BERT, ViT, GPT-2, Swin and OPT, for one token, a sequence and a batch.
const LAYER_NORM: [&str; 10] = [
    "layer_norm:m=1,n=768",
    "layer_norm:m=128,n=768",
    "layer_norm:m=197,n=768",
    "layer_norm:m=512,n=768",
    "layer_norm:m=1024,n=768",
    "layer_norm:m=197,n=1024",
    "layer_norm:m=512,n=1024",
    "layer_norm:m=3136,n=96",
    "layer_norm:m=2048,n=4096",
    "layer_norm:m=8192,n=1024",
];

/// Shapes of T5 and LLaMA, for one token and a sequence.
const RMS_NORM: [&str; 10] = [
    "rms_norm:m=1,n=2048",
    "rms_norm:m=1,n=4096",
    "rms_norm:m=128,n=512",
    "rms_norm:m=128,n=768",
    "rms_norm:m=512,n=1024",
    "rms_norm:m=256,n=2048",
    "rms_norm:m=128,n=4096",
    "rms_norm:m=512,n=4096",
    "rms_norm:m=2048,n=4096",
    "rms_norm:m=64,n=8192",
];

/// Shapes of ResNet, VGG-16, SqueezeNet, GoogLeNet, Inception v3 and DenseNet, and of a batch.
const POOL2D: [&str; 10] = [
    "pool2d:c=64,h=112,w=112,k=3,s=2,p=1,kind=max",
    "pool2d:n=8,c=64,h=112,w=112,k=3,s=2,p=1,kind=max",
    "pool2d:c=64,h=224,w=224,k=2,s=2,kind=max",
    "pool2d:c=512,h=28,w=28,k=2,s=2,kind=max",
    "pool2d:c=64,h=111,w=111,k=3,s=2,kind=max",
    "pool2d:c=192,h=28,w=28,k=3,p=1,kind=max",
    "pool2d:c=192,h=35,w=35,k=3,p=1,kind=avg",
    "pool2d:c=128,h=56,w=56,k=2,s=2,kind=avg",
    "pool2d:c=512,h=7,w=7,k=7,kind=avg",
    "pool2d:c=2048,h=7,w=7,k=7,kind=avg",
];

/// Shapes of global pooling, means in normalisations, maxima of scores, and sums of long rows and
/// of a whole tensor.
const REDUCE: [&str; 10] = [
    "reduce:m=512,n=49,op=mean",
    "reduce:m=2048,n=49,op=mean",
    "reduce:m=128,n=768,op=mean",
    "reduce:m=1,n=1000,op=max",
    "reduce:m=2364,n=197,op=max",
    "reduce:m=512,n=768,op=sum",
    "reduce:m=1024,n=4096,op=sum",
    "reduce:m=1,n=1000000,op=sum",
    "reduce:m=12288,n=1024,op=sum",
    "reduce:m=4096,n=4096,op=max",
];

/// Shapes between the two products of the feed-forward layers of BERT, ViT, GPT-2 and Swin, for one
/// token, a sequence and a batch.
const GELU: [&str; 10] = [
    "pointwise:m=1,n=3072,op=gelu",
    "pointwise:m=1,n=16384,op=gelu",
    "pointwise:m=49,n=3072,op=gelu",
    "pointwise:m=128,n=3072,op=gelu",
    "pointwise:m=197,n=3072,op=gelu",
    "pointwise:m=384,n=4096,op=gelu",
    "pointwise:m=512,n=3072,op=gelu",
    "pointwise:m=1024,n=3072,op=gelu",
    "pointwise:m=3136,n=384,op=gelu",
    "pointwise:m=4096,n=4096,op=gelu",
];

/// Shapes of weights, of ViT's heads, and of images between channels first and channels last.
const TRANSPOSE: [&str; 10] = [
    "transpose:m=512,n=512",
    "transpose:m=128,n=768",
    "transpose:m=768,n=3072",
    "transpose:m=4096,n=4096",
    "transpose:b=12,m=197,n=64",
    "transpose:b=12,m=64,n=197",
    "transpose:m=64,n=3136",
    "transpose:m=3136,n=64",
    "transpose:m=3,n=50176",
    "transpose:m=50176,n=3",
];

/// Shapes of the heads of BERT, ViT, Swin, T5, GPT-2 (a sequence, and one token of it) and LLaMA,
/// and of cross-attention from an image to the words of its prompt.
const ATTENTION: [&str; 10] = [
    "attention:b=12,m=128,n=128,k=64",
    "attention:b=16,m=384,n=384,k=64",
    "attention:b=12,m=512,n=512,k=64",
    "attention:b=12,m=197,n=197,k=64",
    "attention:b=16,m=197,n=197,k=64",
    "attention:b=192,m=49,n=49,k=32",
    "attention:b=8,m=512,n=512,k=64",
    "attention:b=12,m=1,n=1024,k=64",
    "attention:b=32,m=128,n=128,k=128",
    "attention:b=8,m=4096,n=77,k=40",
];

/// Returns the workloads of suites, and workloads given as text. `exact` makes all of them exact,
/// and `with` is appended to the text of each.
pub(crate) fn subjects(words: &[String], exact: bool, with: Option<&str>) -> Result<Vec<Subject>> {
    let words = words.iter().flat_map(|word| if word == "all" { ALL.to_vec() } else { vec![word.as_str()] });
    let words = words.flat_map(|word| match word {
        "operators" => OPERATORS.map(|(operator, _)| operator).to_vec(),
        word => vec![word],
    });
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
    if let Some((operator, texts)) = OPERATORS.iter().find(|(operator, _)| *operator == word) {
        return of_texts(operator, texts);
    }
    Ok(match word {
        "matmul" => of_texts(word, &MATMUL)?,
        "squares" => of_texts(word, &SQUARES)?,
        "mobilenet" => of_texts(word, &MOBILENET)?,
        "vgg" => of_texts(word, &VGG)?,
        "extra" => of_texts(word, &EXTRA)?,
        "resnet18" => convolutions(word, |epilogue| epilogue),
        "resnet18-plain" => convolutions(word, |_| Epilogue::default()),
        text => given(text).with_context(|| format!("'{text}' is no suite ({}) either", ALL.join(", ")))?,
    })
}

/// Returns a workload given as text, in the suite of its operator if there is one.
fn given(text: &str) -> Result<Vec<Subject>> {
    let operator = text.split(':').next().unwrap_or_default();
    let known = OPERATORS.iter().find(|(known, _)| *known == operator);
    of_texts(known.map_or("given", |(known, _)| known), &[text])
}

fn of_texts(suite: &str, texts: &[&str]) -> Result<Vec<Subject>> {
    let subject = |text: &&str| {
        let workload: Workload = text.parse()?;
        Ok(Subject { suite: suite.into(), name: short_name(&workload), workload })
    };
    texts.iter().map(subject).collect()
}

/// Returns ResNet-18's convolutions, C1 to C12.
fn convolutions(suite: &str, epilogue: fn(Epilogue) -> Epilogue) -> Vec<Subject> {
    let tasks = Network::resnet18().tasks.into_iter().filter(|t| t.workload.sizes::<Conv2d>().is_some());
    let subject = |task: autotune::Task| {
        let workload = task.workload.with_epilogue(epilogue(task.workload.epilogue()));
        Subject { suite: suite.into(), name: task.name, workload }
    };
    tasks.map(subject).collect()
}

/// Returns a short name, such as `56x56 64>128 3x3`, or `128x768x768` (m, n, k).
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
