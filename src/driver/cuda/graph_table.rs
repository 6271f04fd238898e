//! The driver's functions for graphs, which every driver since 12.0 has.
//!
//! The runtime's functions have changed their signatures with 12.0 and 13.0. Its handles are the
//! driver's.

use super::driver_api::*;
use super::functions::{Function, function, table};

table! {
    /// The driver's functions for graphs.
    current: c"cuCtxGetCurrent" 4000 PFN_cuCtxGetCurrent_v4000;
    begin: c"cuStreamBeginCapture" 10010 PFN_cuStreamBeginCapture_v10010;
    info: c"cuStreamGetCaptureInfo" 11030 PFN_cuStreamGetCaptureInfo_v11030;
    end: c"cuStreamEndCapture" 10000 PFN_cuStreamEndCapture_v10000;
    instantiate: c"cuGraphInstantiateWithFlags" 11040 PFN_cuGraphInstantiateWithFlags_v11040;
    set_copy: c"cuGraphExecMemcpyNodeSetParams" 10020 PFN_cuGraphExecMemcpyNodeSetParams_v10020;
    launch: c"cuGraphLaunch" 10000 PFN_cuGraphLaunch_v10000;
    destroy_executable: c"cuGraphExecDestroy" 10000 PFN_cuGraphExecDestroy_v10000;
    destroy: c"cuGraphDestroy" 10000 PFN_cuGraphDestroy_v10000;
}
