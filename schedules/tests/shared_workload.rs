//! Values that sketches cache per workload are the same for every config and thread as those of a
//! fresh workload.

use autotune_ir::{CpuTarget, Isa, Program, Target};
use autotune_schedules::{Config, ScheduleSpace, lower};
use autotune_workloads::Workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const WORKLOADS: [&str; 5] = [
    "conv2d:n=2,c=32,h=13,w=17,o=32,k=3,p=1,bias,add,act=relu",
    "conv2d:c=32,h=12,w=12,o=32,k=3,p=1,g=32",
    "conv2d:c=16,h=20,w=20,o=32,k=5,s=2,p=2,bias",
    "matmul:b=2,m=30,n=64,k=48,bias",
    "conv2d:c=64,h=14,w=14,o=64,k=3,p=1,exact",
];

fn targets() -> Vec<Target> {
    let cpu = |isa| Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(2) });
    let gpu = |word| Target::detect(word, None).unwrap();
    vec![cpu(Isa::Avx2), cpu(Isa::Avx512), gpu("cuda:sm_90"), gpu("opencl")]
}

/// Returns configs of a workload on all targets, with targets and sketches mixed.
fn mixed(text: &str, targets: &[Target], seed: u64) -> Vec<(usize, Config)> {
    let workload: Workload = text.parse().unwrap();
    let spaces: Vec<ScheduleSpace> = targets.iter().map(|target| ScheduleSpace::new(&workload, target)).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let numbers = (0..40).map(|i| i % spaces.len());
    numbers.map(|number| (number, spaces[number].sample(&mut rng).config().clone())).collect()
}

#[test]
fn threads_that_share_a_workload_make_the_programs_of_fresh_ones() {
    let targets = targets();
    for (seed, text) in (0..).zip(WORKLOADS) {
        let (shared, configs) = (text.parse::<Workload>().unwrap(), mixed(text, &targets, seed));
        let made = |workload: &Workload, (number, config): &(usize, Config)| -> Program {
            lower(workload, &targets[*number], config).unwrap_or_else(|e| panic!("seed {seed}, {text}: {config}: {e}"))
        };
        let wanted: Vec<Program> = configs.iter().map(|config| made(&text.parse().unwrap(), config)).collect();

        // Threads begin at different configs, so that they request the same values at once and in
        // different orders.
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (shared, configs, wanted, made) = (&shared, &configs, &wanted, &made);
                scope.spawn(move || {
                    for i in (0..configs.len()).map(|i| (i + 11 * thread) % configs.len()) {
                        assert!(made(shared, &configs[i]) == wanted[i], "seed {seed}, {text}: {}", configs[i].1);
                    }
                });
            }
        });
    }
}
