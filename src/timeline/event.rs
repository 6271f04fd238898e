//! An owned event.

use std::sync::Arc;

use crate::context::Context;
use crate::driver::{Driver, DriverResult, RawEvent};
use crate::process::on_ordinary_thread;

/// An event of a device, without timing; destroyed with its last owner.
pub(crate) struct Event {
    context: Arc<Context>,
    /// Live as long as this is.
    pub(crate) raw: RawEvent,
}

impl Event {
    pub(crate) fn create(context: &Arc<Context>, driver: &dyn Driver) -> DriverResult<Arc<Self>> {
        let raw = driver.event_create(context.ordinal(), false)?;
        Ok(Arc::new(Event { context: context.clone(), raw }))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let destroy = |(context, raw): (Arc<Context>, RawEvent)| {
            if let Some(driver) = context.releaser() {
                // SAFETY: the event came from `event_create`, and this was its last owner; waits
                // bound to it stay valid (cudaEventDestroy). A failure leaks the handle.
                let _ = unsafe { driver.event_destroy(raw) };
            }
        };
        // Without a thread the handle leaks, as after a failure.
        on_ordinary_thread((self.context.clone(), self.raw), destroy, |_| {});
    }
}
