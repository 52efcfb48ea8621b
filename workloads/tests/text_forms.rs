//! Tests of text forms: those in docs/workloads.md, those of operators that are not contractions,
//! and errors.

use autotune_workloads::Workload;

#[test]
fn workloads_of_the_documentation_are_read_and_said_again() {
    let page = include_str!("../../docs/workloads.md");
    let quoted = page.split('`').skip(1).step_by(2);
    let shown: Vec<&str> =
        quoted.filter(|text| text.split_once(':').is_some_and(|(_, sizes)| sizes.contains('='))).collect();
    assert!(shown.len() >= 20, "{shown:?}");

    for text in shown {
        let workload: Workload = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        let again: Workload = workload.to_string().parse().unwrap_or_else(|e| panic!("{text}, said again: {e}"));
        assert_eq!(again, workload, "{text}");
    }
}

#[test]
fn the_text_forms_are_read_as_they_are_written() {
    for text in [
        "conv2d:n=1,c=256,h=28,w=28,o=128,k=1,s=1,p=0,pre=scale+bias+relu,bias,act=relu",
        "conv2d:n=1,c=96,h=14,w=14,o=24,k=1,s=1,p=0,pre=gate",
        "conv1d:n=1,c=4,w=9,o=4,k=3,s=1,p=1,pre=bias+clip:-1:6+gate",
        "matmul:m=197,n=768,k=3072,weights=data,pre=scale+gelu",
        "reduce:m=64,n=784,op=mean,pre=relu",
        "pool2d:c=64,h=112,w=112,k=3,s=2,p=1,kind=max",
        "pool2d:n=2,c=3,h=9,w=8,kh=3,kw=2,s=1,p=0,d=2,ceil,kind=max",
        "pool2d:c=3,h=7,w=7,k=7,s=1,p=0,kind=avg,act=relu",
        "pool2d:c=3,h=7,w=9,k=3,s=2,p=1,exclude_pad,kind=avg,bias",
        "pool2d:c=3,h=8,w=8,k=3,s=2,p=1,ceil,kind=avg",
        "reduce:m=1024,n=4096,op=sum",
        "reduce:m=1,n=3,op=prod,bias",
        "reduce:m=7,n=5,op=min",
        "reduce:m=7,n=5,k=3,op=max",
        "transpose:b=3,m=4,n=5,add",
        "transpose:shape=128x12x64,perm=102,bias",
        "transpose:shape=2x3x4x5x6,perm=40213",
        "transpose:shape=7,perm=0",
        "softmax:m=4096,n=1024",
        "log_softmax:m=2,n=21,k=40",
        "layer_norm:m=512,n=768",
        "rms_norm:m=3,n=5,eps=1e-6",
        "attention:b=12,m=197,n=197,k=64",
        "attention:b=1,m=2,n=3,k=4,d=5",
        "attention:b=12,m=128,n=128,k=64,mask=row",
        "attention:b=2,h=12,m=128,n=128,k=64,mask=rows,bias",
        "attention:b=2,m=3,n=4,k=5,d=6,mask=matrix,causal",
        "group_norm:n=1,c=64,g=32,s=3136",
        "instance_norm:n=2,c=3,s=5,eps=1e-3",
        "local_response_norm:n=1,c=64,s=3136,size=5",
        "local_response_norm:n=1,c=6,s=9,size=2,alpha=5e-1,beta=1e0,shift=2e0",
    ] {
        assert_eq!(text.parse::<Workload>().unwrap().to_string(), text);
    }

    for (text, canonical) in [
        // Axes of one element are dropped, and axes that stay adjacent are merged.
        ("transpose:shape=1x128x12x64,perm=0213", "transpose:shape=128x12x64,perm=102"),
        ("transpose:shape=2x3x1x4,perm=0312", "transpose:b=2,m=3,n=4"),
        ("transpose:shape=3x2x5x7,perm=2301", "transpose:m=6,n=35"),
        ("transpose:shape=6x5,perm=10", "transpose:m=6,n=5"),
        ("transpose:shape=1x4x29x7x7,perm=02134", "transpose:shape=4x29x49,perm=102"),
        ("transpose:shape=2x3x4,perm=012", "transpose:shape=24,perm=0"),
        ("transpose:shape=1x1,perm=10", "transpose:shape=1,perm=0"),
        ("pool2d:c=3,h=7,w=9,global,kind=avg", "pool2d:c=3,h=7,w=9,kh=7,kw=9,s=1,p=0,kind=avg"),
        ("pool2d:c=3,h=7,w=9,k=2,exclude_pad,kind=avg", "pool2d:c=3,h=7,w=9,k=2,s=1,p=0,kind=avg"),
        ("pool2d:c=3,h=7,w=9,k=2,s=2,ceil,exclude_pad,kind=avg", "pool2d:c=3,h=7,w=9,k=2,s=2,p=0,ceil,kind=avg"),
    ] {
        assert_eq!(text.parse::<Workload>().unwrap().to_string(), canonical);
    }
}

#[test]
fn errors_name_the_operator_and_the_field() {
    let cases = [
        ("pool2d:c=3,h=8,w=8,k=3,kind=median", "pool2d: field 'kind': 'median' is not a pooling (max or avg)"),
        ("pool2d:c=3,h=8,w=8", "pool2d: field 'k' is missing"),
        ("pool2d:c=3,h=8,w=8,k=3,p=3", "pool2d: field 'ph': padding 3 is not smaller than the window (3)"),
        ("pool2d:c=3,h=1,w=8,k=2,d=4,p=2", "pool2d: field 'ph': a window contains no element of the image"),
        ("pool2d:c=3,h=8,w=8,k=9", "pool2d: field 'kh': the window spans 9 but the padded input only 8"),
        ("pool2d:c=3,h=8,w=8,k=3,s=0", "pool2d: field 'sh': must be at least 1"),
        ("reduce:m=4,n=0,op=max", "reduce: field 'n': must be at least 1"),
        ("reduce:m=4,n=4,op=median", "reduce: field 'op': 'median' is not a reduction"),
        ("reduce:m=4,n=4,axis=1", "reduce: unknown field 'axis'"),
        ("softmax:m=4,n=0", "softmax: field 'n': must be at least 1"),
        ("log_softmax:n=4", "log_softmax: field 'm' is missing (example: log_softmax:m=128,n=50257)"),
        ("layer_norm:m=4,n=4,eps=-1", "layer_norm: field 'eps': '-1' is not a positive number"),
        ("group_norm:c=64,g=5,s=9", "group_norm: field 'g': 5 groups do not divide 64 channels"),
        (
            "local_response_norm:c=3,s=9,size=5",
            "local_response_norm: field 'size': 5 exceeds the number of channels (3)",
        ),
        ("rms_norm:m=4,n=4,eps=nan", "rms_norm: field 'eps': 'nan' is not a positive number"),
        ("attention:m=4,n=4,k=4,mask=all", "attention: field 'mask': 'all' is not a shape of the mask (none, row,"),
        ("attention:h=2,m=4,n=4,k=4,mask=row", "attention: field 'h': heads are separate only with mask=rows"),
        ("attention:m=5,n=4,k=4,causal", "attention: field 'causal': needs at least as many keys (n) as queries (m)"),
        ("attention:m=5,n=16385,k=4,causal", "attention: field 'causal': too many keys (n) for a causal mask"),
        ("attention:h=0,m=4,n=4,k=4,mask=rows", "attention: field 'h': must be at least 1"),
        ("transpose:m=4", "transpose: field 'n' is missing (example: transpose:m=512,n=512)"),
        ("transpose:b=0,m=4,n=4", "transpose: field 'b': must be at least 1"),
        ("transpose:shape=2x3", "transpose: field 'perm' is missing (example: transpose:shape=128x12x64,perm=102)"),
        ("transpose:perm=10", "transpose: field 'shape' is missing"),
        ("transpose:shape=2x,perm=10", "transpose: field 'shape': '2x' is not extents, such as 128x12x64"),
        ("transpose:shape=2x0,perm=10", "transpose: field 'shape': must be at least 1"),
        ("transpose:shape=2x3,perm=1x0", "transpose: field 'perm': '1x0' is not a permutation of axis numbers"),
        ("transpose:shape=2x3,perm=11", "transpose: field 'perm': is not a permutation of the 2 axes"),
        ("transpose:shape=2x3,perm=102", "transpose: field 'perm': is not a permutation of the 2 axes"),
        ("transpose:shape=2x3,perm=10,m=2", "transpose: field 'm': cannot be combined with 'shape'"),
        (
            "transpose:shape=2x2x2x2x2x2,perm=543210",
            "transpose: field 'perm': 6 axes after merging, at most 5 are supported",
        ),
        (
            "transpose:shape=4294967296x4294967296x4,perm=201",
            "transpose: field 'shape': 4294967296 is too large: input exceeds the supported size",
        ),
        (
            "transpose:m=99999999999,n=99999999999",
            "transpose: field 'n': 99999999999 is too large: input exceeds the supported size",
        ),
    ];

    for (text, wanted) in cases {
        let error = text.parse::<Workload>().unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{text}: {error}");
    }
}
