//! An answer that the kernel may carry.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use gateway_common::frames::TAIL_CHUNKS;
use gateway_common::seq::before;
use gateway_common::splice::{Flow, Mark, Seam, Slot, Stop};

use super::shared::{ORDER, flow, slot};
use super::{Bound, Splicer};

/// Why an answer cannot be armed at this moment. All pass but the last three.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NotNow {
    /// More of the answer has arrived than was read.
    Behind,
    /// Not all that was written has left, or the kernel has seen nothing leave yet.
    Unsent,
    /// An earlier answer on one of the connections is not acknowledged in full.
    Unsettled,
    /// All flows are in use.
    Full,
    /// The client takes smaller segments than the endpoint sends.
    Segments,
    /// One of the connections is over IPv4, the other over IPv6.
    Families,
    /// A connection is closing.
    Ended,
}

/// An armed answer; dropping it takes it back.
#[derive(Debug)]
pub(crate) struct Armed {
    splicer: Arc<Splicer>,
    flow: u32,
    up: u32,
}

/// What the kernel has moved.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Moved {
    /// Bytes, chunk framing included.
    pub(crate) bytes: u64,
    /// Bytes without it.
    pub(crate) data: u64,
    /// Chunks.
    pub(crate) chunks: u64,
    /// Between the first and the last of them.
    pub(crate) span: Duration,
    /// The beginnings of the last ones, oldest first.
    pub(crate) tails: Vec<Vec<u8>>,
}

impl Splicer {
    /// Lets the kernel move what follows on `read` bytes of the endpoint's stream to
    /// behind `written` bytes of the client's; both are counted by the sockets, since
    /// the connections were opened. Both must be at a chunk's boundary.
    ///
    /// # Errors
    ///
    /// [`NotNow`]; nothing has changed then.
    pub(crate) fn arm(
        self: &Arc<Self>,
        up: &Bound,
        read: u64,
        down: &Bound,
        written: u64,
    ) -> Result<Armed, NotNow> {
        let up_slot = self.slots.read(up.slot);
        let down_slot = self.slots.read(down.slot);
        let mark = Mark::unpack(up_slot.mark);
        let up_local = up.handshake.peer_isn.wrapping_add(1).wrapping_add(read as u32);
        let up_wire = up_local.wrapping_add(mark.moved);
        if mark.end != up_wire {
            return Err(NotNow::Behind);
        }
        let down_local = down.handshake.own_isn.wrapping_add(1).wrapping_add(written as u32);
        let is_known = down_slot.known == Slot::OWN | Slot::PEER && up_slot.known & Slot::OWN != 0;
        if !is_known || down_slot.own_next != down_local {
            return Err(NotNow::Unsent);
        }
        if up_slot.ended != 0 || down_slot.ended != 0 {
            return Err(NotNow::Ended);
        }
        if down.handshake.peer_mss < up.handshake.own_mss {
            return Err(NotNow::Segments);
        }
        if down.tuple.remote.is_v4() != up.tuple.remote.is_v4() {
            return Err(NotNow::Families);
        }
        let before = [up_slot.flow, down_slot.flow];
        if before.iter().any(|flow| *flow != 0 && !self.is_settled(*flow)) {
            return Err(NotNow::Unsettled);
        }
        let down_shift = match down_slot.flow {
            0 => 0,
            flow => {
                let flow = self.flows.read(flow);
                flow.down_shift.wrapping_add(flow.length)
            }
        };
        let number = self.publish(
            [up.slot, down.slot],
            before,
            &Flow {
                up: up.tuple,
                down: down.tuple,
                up_ifindex: up.handshake.ifindex,
                down_ifindex: down.handshake.ifindex,
                up_slot: up.slot,
                down_slot: down.slot,
                up_wire,
                down_wire: down_local.wrapping_add(down_shift),
                up_shift: mark.moved,
                down_shift,
                ..Flow::default()
            },
        )?;
        Ok(Armed { splicer: Arc::clone(self), flow: number, up: up.slot })
    }

    /// Enters a flow and puts it in force on both connections. As long as nothing is
    /// moved it translates exactly as the flows before it, so the two stores need not
    /// be one.
    fn publish(&self, slots: [u32; 2], before: [u32; 2], new: &Flow) -> Result<u32, NotNow> {
        let mut books = self.lock();
        let number = books.free_flows.pop_front().ok_or(NotNow::Full)?;
        self.flows.write(number, new);
        fence(Ordering::SeqCst);
        for (slot_index, ifindex) in slots.into_iter().zip([new.up_ifindex, new.down_ifindex]) {
            let is_door = books.doors.contains(&ifindex);
            let hop = if is_door { Slot::PEER_DEVICE } else { Slot::NEIGHBOUR };
            self.slots.u32_at(slot_index, slot::HOP).store(hop, ORDER);
        }
        for (slot_index, before) in slots.into_iter().zip(before).rev() {
            self.slots.u32_at(slot_index, slot::FLOW).store(number, ORDER);
            books.leave(before);
        }
        books.users[number as usize] = 2;
        drop(books);
        self.flows.u32_at(number, flow::OPEN).store(1, ORDER);
        Ok(number)
    }

    /// Whether all that was moved in `number` has been acknowledged, and nothing more
    /// can be moved.
    pub(super) fn is_settled(&self, number: u32) -> bool {
        if self.flows.u32_at(number, flow::SETTLED).load(ORDER) != 0 {
            return true;
        }
        let flow = self.flows.read(number);
        if flow.frozen == 0 {
            return false;
        }
        // The acknowledgement may have come before the flow was frozen.
        let acked = self.slots.u32_at(flow.down_slot, slot::PEER_ACK).load(ORDER);
        let seam = Seam {
            up_wire: flow.up_wire,
            down_wire: flow.down_wire,
            up_shift: flow.up_shift,
            down_shift: flow.down_shift,
            length: flow.length,
            settled: false,
        };
        let is_settled = flow.length == 0
            || (seam.arrived(acked) == flow.length && !before(acked, flow.down_wire));
        if is_settled {
            self.flows.u32_at(number, flow::SETTLED).store(1, ORDER);
        }
        is_settled
    }
}

impl Armed {
    /// Bytes moved so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.splicer.flows.u64_at(self.flow, flow::BYTES).load(ORDER)
    }

    /// Why the last packet that the kernel did not move was not moved.
    pub(super) fn stop(&self) -> &'static str {
        Stop::name(self.splicer.flows.read(self.flow).stop)
    }

    /// Takes the answer back, and says what was moved. To be called when bytes that
    /// the kernel did not move have arrived, or the end of the stream: then nothing
    /// more can be moved.
    pub(crate) fn take_back(self) -> Moved {
        let flow = self.splicer.flows.read(self.flow);
        let tails = self.splicer.tails.read(self.flow);
        let kept = flow.chunks.min(u64::from(TAIL_CHUNKS)) as u32;
        Moved {
            bytes: flow.bytes,
            data: flow.data,
            chunks: flow.chunks,
            span: Duration::from_nanos(flow.last_ns.saturating_sub(flow.first_ns)),
            tails: tails.last(flow.tail, kept),
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        let Splicer { flows, slots, .. } = &*self.splicer;
        flows.u32_at(self.flow, flow::OPEN).store(0, ORDER);
        let mark = Mark::unpack(slots.u64_at(self.up, slot::MARK).load(ORDER));
        let flow = flows.read(self.flow);
        let length = mark.moved.wrapping_sub(flow.up_shift);
        let is_past = mark.end != flow.up_wire.wrapping_add(length);
        let has_ended = slots.u32_at(self.up, slot::ENDED).load(ORDER) != 0;
        // Otherwise a packet may be on its way through the programs at this moment; the
        // connections are about to be closed, and the length stays what the mark says.
        if is_past || has_ended {
            flows.u32_at(self.flow, flow::LENGTH).store(length, ORDER);
            flows.u32_at(self.flow, flow::FROZEN).store(1, ORDER);
        }
    }
}
