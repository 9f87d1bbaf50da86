//! The messages of pprof's format: those of profile.proto of github.com/google/pprof, as far as a heap profile has them.
//! Numbers of texts are places in `string_table`.

use prost::Message;

/// The fields of each message: name, type in Rust, tag, and what prost calls the type.
macro_rules! messages {
    ($($Name:ident { $($field:ident: $kind:ty = $tag:tt [$($how:tt)+];)* })*) => {$(
        #[derive(Clone, PartialEq, Message)]
        pub struct $Name {
            $(#[prost($($how)+, tag = $tag)] pub $field: $kind,)*
        }
    )*};
}

messages! {
    Profile {
        sample_type: Vec<ValueType> = "1" [message, repeated];
        sample: Vec<Sample> = "2" [message, repeated];
        mapping: Vec<Mapping> = "3" [message, repeated];
        location: Vec<Location> = "4" [message, repeated];
        function: Vec<Function> = "5" [message, repeated];
        string_table: Vec<String> = "6" [string, repeated];
        time_nanos: i64 = "9" [int64];
        duration_nanos: i64 = "10" [int64];
        period_type: Option<ValueType> = "11" [message, optional];
        period: i64 = "12" [int64];
        comment: Vec<i64> = "13" [int64, repeated];
        default_sample_type: i64 = "14" [int64];
    }
    ValueType {
        r#type: i64 = "1" [int64];
        unit: i64 = "2" [int64];
    }
    // Of the calls of a sample the innermost comes first.
    Sample {
        location_id: Vec<u64> = "1" [uint64, repeated];
        value: Vec<i64> = "2" [int64, repeated];
    }
    Mapping {
        id: u64 = "1" [uint64];
        memory_start: u64 = "2" [uint64];
        memory_limit: u64 = "3" [uint64];
        file_offset: u64 = "4" [uint64];
        filename: i64 = "5" [int64];
        build_id: i64 = "6" [int64];
        has_functions: bool = "7" [bool];
        has_filenames: bool = "8" [bool];
        has_line_numbers: bool = "9" [bool];
        has_inline_frames: bool = "10" [bool];
    }
    // Of functions that are inlined in each other the innermost comes first.
    Location {
        id: u64 = "1" [uint64];
        mapping_id: u64 = "2" [uint64];
        address: u64 = "3" [uint64];
        line: Vec<Line> = "4" [message, repeated];
    }
    Line {
        function_id: u64 = "1" [uint64];
        line: i64 = "2" [int64];
    }
    Function {
        id: u64 = "1" [uint64];
        name: i64 = "2" [int64];
        system_name: i64 = "3" [int64];
        filename: i64 = "4" [int64];
    }
}
