//! How large everything is, and which tests there are.

use super::postmark::Work;

/// How large everything is.
pub struct Size {
    /// Of the cgroup of the server and the consumer.
    pub limit: u64,
    /// Of the cgroup of postmark and the stream.
    pub client_limit: u64,
    /// The consumer's segment.
    pub segment: u64,
    /// Its pause after a block of 1 MiB.
    pub pause_us: u64,
    /// The disk.
    pub disk: u64,
    /// Postmark.
    pub work: Work,
    /// Bytes of the stream's file, and how often it is written and read.
    pub stream: [u64; 2],
    /// Milliseconds of the modelled zones.
    pub ticks: usize,
}

impl Size {
    /// About a quarter of a minute a test.
    pub const FULL: Size = Size {
        limit: 384 << 20,
        client_limit: 64 << 20,
        segment: 192 << 20,
        pause_us: 2000,
        disk: 1 << 30,
        work: Work { files: 4000, sizes: [4096, 200_000], transactions: 16_000 },
        stream: [512 << 20, 4],
        ticks: 20_000,
    };
    /// A few seconds a test.
    pub const QUICK: Size = Size {
        limit: 192 << 20,
        client_limit: 48 << 20,
        segment: 96 << 20,
        pause_us: 2000,
        disk: 512 << 20,
        work: Work { files: 1000, sizes: [4096, 200_000], transactions: 1500 },
        stream: [192 << 20, 1],
        ticks: 3000,
    };
}

/// The document's two tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Its POSTMARK.
    Postmark,
    /// Its MICRO.
    Streaming,
    /// The reviewer's case: requests that both zones can serve.
    SmallZone,
    /// Requests that the small zone alone can serve.
    SmallZoneAlone,
}

impl Test {
    /// The document's.
    pub const ALL: [Test; 2] = [Test::Postmark, Test::Streaming];

    /// As `--only` and the tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Test::Postmark => "postmark",
            Test::Streaming => "streaming",
            Test::SmallZone => "a small zone beside a large one",
            Test::SmallZoneAlone => "requests that only the small zone can serve",
        }
    }
}
