//! Nodes and what is asked for on them: a simple scheduler.
//!
//! A pod goes to the node with most left, as the scheduler of Kubernetes scores by default. Only memory counts. A pod stays where it
//! is. A limit is raised only if its node has room, else the kubelet defers it.

/// Pods of a node at most, a kubelet's default.
const PODS: u32 = 110;

/// The nodes of a fleet, all of one size.
#[derive(Clone, Debug)]
pub struct Cluster {
    left: Vec<f64>,
    pods: Vec<u32>,
}

impl Cluster {
    /// Nodes that have so many bytes each.
    pub fn new(nodes: usize, bytes: f64) -> Self {
        Self { left: vec![bytes; nodes], pods: vec![0; nodes] }
    }

    /// The node on which a pod is placed, if one has room.
    pub fn place(&mut self, bytes: f64) -> Option<usize> {
        let fits = |&node: &usize| self.left[node] >= bytes && self.pods[node] < PODS;
        let node = (0..self.left.len()).filter(fits).max_by(|&a, &b| self.left[a].total_cmp(&self.left[b]))?;
        self.left[node] -= bytes;
        self.pods[node] += 1;
        Some(node)
    }

    /// Takes a pod from its node.
    pub fn remove(&mut self, node: usize, bytes: f64) {
        self.left[node] += bytes;
        self.pods[node] -= 1;
    }

    /// Changes what a pod on a node asks for, if the node has room for it.
    pub fn resize(&mut self, node: usize, from: f64, to: f64) -> bool {
        let fits = to - from <= self.left[node];
        if fits {
            self.left[node] -= to - from;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_spread_until_none_fits() {
        let mut cluster = Cluster::new(2, 10.0);
        let first = cluster.place(6.0).unwrap();
        let second = cluster.place(5.0).unwrap();
        assert_ne!(first, second);
        assert_eq!(cluster.place(5.0), Some(second));
        assert_eq!(cluster.place(5.0), None);
        cluster.remove(first, 6.0);
        assert_eq!(cluster.place(5.0), Some(first));
    }

    #[test]
    fn a_pod_grows_as_far_as_its_node_has_room() {
        let mut cluster = Cluster::new(1, 10.0);
        let node = cluster.place(4.0).unwrap();
        cluster.place(4.0).unwrap();
        assert!(!cluster.resize(node, 4.0, 6.5));
        assert!(cluster.resize(node, 4.0, 6.0));
        assert!(!cluster.resize(node, 6.0, 6.1));
        assert!(cluster.resize(node, 6.0, 1.0));
        assert!(cluster.place(5.0).is_some());
    }

    #[test]
    fn a_node_takes_as_many_pods_as_a_kubelet_does() {
        let mut cluster = Cluster::new(1, 1e9);
        assert!((0..PODS).all(|_| cluster.place(1.0).is_some()));
        assert_eq!(cluster.place(1.0), None);
    }
}
