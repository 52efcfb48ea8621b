//! Tests of text forms, and of errors that name the field.

use super::*;

fn error(text: &str) -> String {
    text.parse::<Workload>().unwrap_err().to_string()
}

#[test]
fn text_form_round_trips() {
    for text in [
        "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1",
        "conv2d:n=2,c=32,h=17,w=19,o=32,kh=3,kw=5,sh=1,sw=2,ph=1,pw=2,dh=2,dw=1,g=32,bias,add,act=relu",
        "matmul:m=1,n=1000,k=512,bias",
        "matmul:b=12,m=197,n=197,k=64,act=relu,exact",
        "matmul:m=1,n=1000,k=512,bias,cold",
        "matmul:m=197,n=197,k=64,dtype=bf16,bias",
        "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,g=2,dtype=f16,bias",
        "matmul:m=1,n=1000,k=512,dtype=tf32",
        "matmul:m=3,n=5,k=7,ta,tb,bias",
        "matmul:m=3,n=5,k=7,weights=data",
        "matmul:b=2,m=3,n=5,k=7,tb,weights=constant,add",
        "matmul:b=8,lhs=shared,m=3,n=5,k=7",
        "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,weights=data,bias",
        "matmul:b=2x12,lhs=0,rhs=1,m=3,n=5,k=7,ta,bias",
        "matmul:b=2x3x4x5,lhs=02,m=3,n=5,k=7",
        "reduce:m=8,n=5,k=7,op=min",
        "pointwise:m=8,n=5,op=gelu,to=f32,dtype=f16,bias",
        "reduce:shape=8x64x784,axes=02,op=mean,bias,act=relu",
        "reduce:shape=2x3x4x5,axes=13,op=prod",
        "matmul:m=1,n=1000,k=512,scale,bias,add,act=prelu,exact",
        "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,dtype=f16,scale,act=clip:0:6",
        "conv1d:n=1,c=64,w=1000,o=128,k=5,s=1,p=2,bias,act=leaky_relu:0.2",
        "pointwise:m=4,n=5,op=hard_sigmoid:0.2:0.5,act=hard_sigmoid",
        "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,bias,act=hard_swish,post_scale,post_bias,exact,cold",
        "matmul:m=1,n=1000,k=512,post_bias",
        "matmul:m=1,n=1000,k=512,post_scale,post_add,exact",
        "matmul:m=8,n=5,k=7,data=u8,weights=i8,out=u8,scale,bias=f32,act=round:0:255,post_scale,post_bias=f32,post_add=u8",
        "matmul:m=8,n=5,k=7,data=u8,weights=i8,out=u8,post_scale,post_bias=f32",
        "matmul:m=1,n=1000,k=512,cold,within=00c0ffee00c0ffee",
    ] {
        let w: Workload = text.parse().unwrap();
        assert_eq!(w.to_string(), text);

        assert_eq!(serde_json::from_str::<Workload>(&serde_json::to_string(&w).unwrap()).unwrap(), w);
    }
}

#[test]
fn optional_fields_have_the_usual_defaults() {
    let w: Workload = "conv2d:c=3,h=8,w=8,o=4,k=3".parse().unwrap();
    assert_eq!(w.to_string(), "conv2d:n=1,c=3,h=8,w=8,o=4,k=3,s=1,p=0");
    assert_eq!(w.output_shape(), [1, 4, 6, 6]);
    assert_eq!("matmul:m=4,n=4,k=2,dtype=f32".parse::<Workload>().unwrap().to_string(), "matmul:m=4,n=4,k=2");
}

#[test]
fn errors_name_the_field() {
    assert!(error("conv4d:c=1").contains("unknown operator 'conv4d'"));
    assert!(error("conv2d:c=3,h=8,w=8,k=3").contains("'o' is missing"));
    assert!(error("conv2d:c=3,h=8,w=8,o=4,k=3,q=1").contains("unknown field 'q'"));
    assert!(error("conv2d:c=3,c=3,h=8,w=8,o=4,k=3").contains("'c' is given twice"));
    assert!(error("conv2d:c=0,h=8,w=8,o=4,k=3").contains("'c': must be at least 1"));
    assert!(error("conv2d:c=x,h=8,w=8,o=4,k=3").contains("'c': 'x' is not a whole number"));
    assert!(error("conv2d:c=3,h=8,w=8,o=4,k=11").contains("'kh': the dilated kernel spans 11"));
    assert!(error("conv2d:c=3,h=8,w=8,o=4,k=3,p=9").contains("'ph': padding 9"));
    assert!(error("conv2d:c=3,h=8,w=8,o=4,k=3,g=2").contains("'g': 2 groups do not divide"));

    assert!(error("matmul:b=2x3,lhs=02,m=4,n=4,k=2").contains("'lhs': '02' is not a list of the operand's batch axes"));
    assert!(error("matmul:b=2x3,lhs=0,rhs=0,m=4,n=4,k=2").contains("'rhs': batch axis 1 belongs to neither"));
    assert!(error("matmul:b=2x0,lhs=0,m=4,n=4,k=2").contains("'b': must be at least 1"));

    assert!(error("reduce:shape=2x3,axes=2,op=sum").contains("'axes': axis 2 does not exist: the shape has 2 axes"));
    assert!(error("reduce:shape=2x3,axes=11,op=sum").contains("'axes': names axis 1 twice"));
    assert!(error("reduce:shape=2x0,axes=1,op=sum").contains("'shape': must be at least 1"));
    assert!(error("reduce:shape=2x3,op=sum").contains("'axes' is missing"));
    assert!(error("reduce:shape=2x3,axes=1,k=2,op=sum").contains("'k': cannot be combined with 'shape'"));

    assert!(error("softmax:m=4,n=4,weights=data").contains("'weights': the operator has no weights"));
    assert!(error("matmul:m=4,n=4,k=2,weights=any").contains("'weights': 'any' is not constant or data"));
    assert!(error("matmul:m=4,n=4,k=2,within=me").contains("'within': 'me' is not a hexadecimal number"));

    assert!(error("conv2d:c=3,h=8,w=8,o=4,k=3,s=0").contains("'sh': must be at least 1"));
    assert!(error("conv2d:c=3,h=99999999999,w=99999999999,o=4,k=3").contains("exceeds"));
    assert!(error("matmul:m=4294967296,n=4294967296,k=2").contains("C exceeds"));

    assert!(
        error("matmul:m=4,n=4,k=2,act=cosh").contains("'act': 'cosh' is not an activation (none, relu, clip:LO:HI")
    );
    assert!(
        error("matmul:m=4,n=4,k=2,act=clip:6:0").contains("'act': 'clip:6:0' is not clip:LO:HI with LO at most HI")
    );
    assert!(error("matmul:m=4,n=4,k=2,act=relu:6").contains("'act': 'relu:6' is not a function with parameters"));
    assert!(error("pointwise:m=4,n=4,op=copy,to=tf32").contains("'to': 'tf32' is not an element type in memory"));
    assert!(error("matmul:m=4,n=4,k=2,scale=2").contains("'scale': '2' is not a flag"));
    assert!(error("matmul:m=4,n=4,k=2,post_add=2").contains("'post_add': '2' is not a flag"));
    assert!(
        error("matmul:m=4,n=4,k=2,add=u8,post_add=i8").contains("'post_add': 'i8' is not the type in the field of")
    );
    assert!(error("matmul:m=4,n=4,k=2,post_add,post_add").contains("'post_add' is given twice"));
    assert!(error("matmul:m=4,n=4,k=2,dtype=f64").contains("'dtype': 'f64'"));
}

#[test]
fn flops_count_two_per_multiply_add() {
    let w: Workload = "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1".parse().unwrap();
    assert_eq!(w.spec().flops(), 2.0 * 64.0 * 56.0 * 56.0 * 64.0 * 9.0);
}
