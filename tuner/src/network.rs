//! Networks as lists of tuning tasks.

use autotune_workloads::Workload;

/// Workload to tune, and how often its network runs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Short name, unique within the network (`C2`, `dense`).
    pub name: String,
    /// Workload that the task computes.
    pub workload: Workload,
    /// Number of occurrences in the network. [`Network::resnet18`] has one task with 0.
    pub count: usize,
}

impl Task {
    /// Returns a task for a single workload that occurs once.
    pub fn single(workload: Workload) -> Self {
        Self { name: workload.operator().kind().name.into(), workload, count: 1 }
    }

    /// Returns the factor of the task's time in the objective: its count, or 1 for a task that the
    /// network lists but never runs.
    pub fn weight(&self) -> f64 {
        self.count.max(1) as f64
    }
}

/// Neural network as seen by tuning: its distinct workloads.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Name of the network in reports.
    pub name: String,
    /// Distinct workloads in the order in which they first run.
    pub tasks: Vec<Task>,
}

/// ResNet-18 at batch size 1 with folded batch normalisation: name, occurrences, workload.
const RESNET18: [(&str, usize, &str); 13] = [
    ("C1", 1, "conv2d:c=3,h=224,w=224,o=64,k=7,s=2,p=3,bias,act=relu"),
    ("C2", 4, "conv2d:c=64,h=56,w=56,o=64,k=3,p=1,bias,act=relu"),
    ("C3", 0, "conv2d:c=64,h=56,w=56,o=64,k=1,bias"),
    ("C4", 1, "conv2d:c=64,h=56,w=56,o=128,k=3,s=2,p=1,bias,act=relu"),
    ("C5", 1, "conv2d:c=64,h=56,w=56,o=128,k=1,s=2,bias"),
    ("C6", 3, "conv2d:c=128,h=28,w=28,o=128,k=3,p=1,bias,add,act=relu"),
    ("C7", 1, "conv2d:c=128,h=28,w=28,o=256,k=3,s=2,p=1,bias,act=relu"),
    ("C8", 1, "conv2d:c=128,h=28,w=28,o=256,k=1,s=2,bias"),
    ("C9", 3, "conv2d:c=256,h=14,w=14,o=256,k=3,p=1,bias,add,act=relu"),
    ("C10", 1, "conv2d:c=256,h=14,w=14,o=512,k=3,s=2,p=1,bias,act=relu"),
    ("C11", 1, "conv2d:c=256,h=14,w=14,o=512,k=1,s=2,bias"),
    ("C12", 3, "conv2d:c=512,h=7,w=7,o=512,k=3,p=1,bias,add,act=relu"),
    ("dense", 1, "matmul:m=1,n=1000,k=512,bias"),
];

impl Network {
    /// Returns the network with all workloads measured with warm caches, not
    /// [uncached](Workload::is_cold).
    pub fn warm(mut self) -> Self {
        self.tasks.iter_mut().for_each(|task| task.workload = task.workload.with_cold(false));
        self
    }

    /// Returns the workloads of the tasks.
    pub fn workloads(&self) -> Vec<Workload> {
        self.tasks.iter().map(|task| task.workload.clone()).collect()
    }

    /// Returns ResNet-18 (He et al., 2016) for inference at batch size 1 and 224x224 pixels. Its
    /// tasks are the twelve convolution shapes of Table 1 of the AutoTVM paper and the classifier:
    /// 20 convolutions and one matrix product in all.
    ///
    /// Batch normalisation is folded into a bias. A shape that occurs with different epilogues is
    /// one task with the most frequent epilogue; ties go to bias + ReLU. The first convolution of a
    /// basic block has bias + ReLU, the second bias + residual + ReLU, a projection shortcut only
    /// bias. C3, the projection shortcut of the first stage, is in the paper's table but not in the
    /// published network, whose first stage keeps its width. Its count is 0, and it is tuned as if
    /// it ran once.
    pub fn resnet18() -> Self {
        let task = |&(name, count, text): &(&str, usize, &str)| {
            let workload = text.parse().ok()?;
            Some(Task { name: name.to_string(), workload, count })
        };
        Self { name: "resnet18".into(), tasks: RESNET18.iter().filter_map(task).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_workloads::{Activation, Conv2d, Epilogue, Matmul};

    const NONE: Epilogue = Epilogue {
        scale: false,
        bias: false,
        residual: false,
        activation: Activation::None,
        post_scale: false,
        post_bias: false,
        post_residual: false,
        table: false,
    };
    const BIAS: Epilogue = Epilogue { bias: true, ..NONE };
    const RELU: Epilogue = Epilogue { activation: Activation::Relu, ..BIAS };
    const ADD_RELU: Epilogue = Epilogue { residual: true, ..RELU };

    /// Returns every convolution of the network in execution order, independently derived from its
    /// definition.
    fn graph() -> Vec<Workload> {
        let conv = |c, hw, o, k, s, epilogue| {
            let conv = Conv2d {
                n: 1,
                c,
                h: hw,
                w: hw,
                o,
                kh: k,
                kw: k,
                stride: [s, s],
                pad: [k / 2, k / 2],
                dilation: [1, 1],
                groups: 1,
            };
            Workload::new(conv).unwrap().with_epilogue(epilogue)
        };

        let mut convs = vec![conv(3, 224, 64, 7, 2, RELU)];
        let (mut c, mut hw) = (64, 56);
        for o in [64, 128, 256, 512] {
            for _block in 0..2 {
                let s = if o == c { 1 } else { 2 };
                convs.push(conv(c, hw, o, 3, s, RELU));
                if o != c {
                    convs.push(conv(c, hw, o, 1, s, BIAS));
                }
                (c, hw) = (o, hw / s);
                convs.push(conv(c, hw, o, 3, 1, ADD_RELU));
            }
        }
        convs
    }

    #[test]
    fn resnet18_counts_and_epilogues_match_the_graph() {
        let (network, graph) = (Network::resnet18(), graph());
        assert_eq!(network.tasks.len(), 13);
        assert_eq!(graph.len(), 20);
        for task in &network.tasks {
            let bare = |workload: &Workload| workload.with_epilogue(Epilogue::default());
            let same: Vec<_> = graph.iter().filter(|w| bare(w) == bare(&task.workload)).collect();
            if task.workload.sizes::<Conv2d>().is_none() {
                assert_eq!(task.workload.sizes(), Some(&Matmul::new(1, 1, 1000, 512)));
                assert_eq!((task.count, task.workload.epilogue()), (1, BIAS));
                continue;
            }
            assert_eq!(task.count, same.len(), "{}", task.name);
            let votes = |e: Epilogue| same.iter().filter(|w| w.epilogue() == e).count();
            let most = [RELU, ADD_RELU, BIAS].into_iter().map(votes).max().unwrap();
            assert_eq!(votes(task.workload.epilogue()), most, "{}", task.name);
            if votes(RELU) == most && most > 0 {
                assert_eq!(task.workload.epilogue(), RELU, "{}: ties go to bias + relu", task.name);
            }
        }
        let listed: usize = network.tasks.iter().map(|t| t.count).sum();
        assert_eq!(listed, 21);
        assert!(network.tasks.iter().all(|t| t.weight() >= 1.0));
    }
}
