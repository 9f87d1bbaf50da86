//! The end of a connection in order.

use crate::transport::Writer;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

/// Time for the words of farewell to a client that does not read.
const FAREWELL: Duration = Duration::from_secs(1);

/// Ends a connection in order: TLS announces it.
pub(super) async fn farewell(mut writer: Writer) {
    // The client may be gone already.
    let _ = timeout(FAREWELL, writer.shutdown()).await;
}
