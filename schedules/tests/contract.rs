//! The contract of sketches, run on the built-in ones.

use autotune_ir::{CpuTarget, GpuTarget, Target};
use autotune_schedules::contract;
use autotune_workloads::Workload;

use crate::common::or_long;

const WORKLOADS: [&str; 19] = [
    "conv2d:c=16,h=9,w=11,o=32,k=3,p=1,bias,add,act=relu",
    "conv2d:n=2,c=12,h=8,w=8,o=10,k=3,s=2,p=1",
    "conv2d:c=16,h=10,w=9,o=16,k=3,p=1,g=16,bias",
    "matmul:m=33,n=40,k=24,bias,act=relu",
    "matmul:b=3,m=16,n=17,k=20",
    "matmul:m=64,n=48,k=64,dtype=f16",
    "pool2d:c=5,h=13,w=21,k=3,s=2,p=1,kind=max",
    "pool2d:n=2,c=3,h=9,w=20,k=2,s=1,p=0,kind=avg,act=relu",
    "reduce:m=17,n=131,op=mean",
    "transpose:b=2,m=33,n=20,bias",
    "conv2d:c=16,h=9,w=11,o=32,k=3,p=1,scale,bias,act=hard_swish",
    "matmul:m=33,n=40,k=24,ta,tb,weights=data,bias,act=gelu",
    "matmul:b=2,m=33,n=40,k=24,tb,weights=constant,act=prelu",
    "separable_conv2d:c=16,h=9,w=11,o=24,k=3,s=2,p=1,mid=relu,bias",
    "mlp:m=17,n=24,k=33,h=40,mid=relu,mid_bias,add",
    "gather:m=33,n=40,k=100,bias",
    "pad:c=5,h=9,w=20,p=2,mode=edge",
    "resize:c=5,h=9,w=20,oh=13,ow=31,mode=linear,act=relu",
    "pool2d:c=5,h=13,w=21,k=3,s=2,p=1,exclude_pad,kind=avg",
];

#[test]
fn sketches_keep_theirs() {
    let workloads: Vec<Workload> = WORKLOADS.iter().map(|text| text.parse().unwrap()).collect();
    let gpu = |name: &str| Target::Gpu(GpuTarget::stated(name).unwrap());
    let (cpu, configs) = (Target::Cpu(CpuTarget::generic_avx2(2)), or_long([5, 24]));
    for name in ["direct", "map_reduce", "winograd", "fused"] {
        contract::sketch(name, &cpu, &workloads, configs);
    }
    for name in ["tiled", "winograd", "rows"] {
        contract::sketch(name, &gpu("opencl"), &workloads, configs);
    }
    for name in ["mma", "wgmma"] {
        contract::sketch(name, &gpu("cuda:sm_90"), &workloads, configs);
    }
}
