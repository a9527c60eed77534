//! Packets of an armed flow: what is moved, what is not, and what each side is told.

use aya::maps::{Array, MapData};
use gateway_common::splice::{Conn, Flow, MARK_DONE, Mark, Slot, Stop, Tuple};

use super::segment::{ACK, FRAME, Family, Host, PSH, Segment};
use super::{NEXT, Programs, REDIRECT};

in_both_families!(
    whole_chunks_become_packets_of_the_clients_connection,
    each_packet_goes_by_the_hop_of_its_connection,
    what_is_not_whole_chunks_goes_to_the_local_socket,
    a_local_socket_never_learns_of_moved_bytes,
    what_is_sent_again_across_the_end_of_the_moved_bytes_is_cut_there,
    what_is_sent_again_from_before_the_moved_bytes_is_cut_there,
    what_the_local_socket_sends_again_across_the_moved_bytes_is_cut_there,
    a_clients_acknowledgement_reaches_the_endpoint,
    nothing_is_moved_beyond_the_clients_window,
    a_flow_that_is_not_open_moves_nothing
);

/// Slots and the flow of the connections here.
const UP: u32 = 1;
const DOWN: u32 = 2;
const FLOW: u32 = 1;

/// Wire: where the moved bytes begin in the endpoint's and in the client's stream.
const UP_WIRE: u32 = 5_000_000;
const DOWN_WIRE: u32 = 70_000;

const CHUNK: &[u8] = b"5\r\nhello\r\n";

/// From the endpoint: the next bytes of its answer.
fn answer(payload: &[u8]) -> Segment {
    Segment {
        source: (Host::Endpoint, 8000),
        destination: (Host::Back, 50_000),
        seq: UP_WIRE,
        ack: 300,
        flags: ACK | PSH,
        payload: payload.to_vec(),
        ..Segment::default()
    }
}

/// From the client: it has so many of the moved bytes.
fn acknowledged(bytes: u32) -> Segment {
    Segment { seq: 900, ack: DOWN_WIRE + bytes, ..Segment::default() }
}

/// Programs with one armed flow between the two.
fn armed(family: Family) -> Option<Programs> {
    let mut programs = Programs::load(family)?;
    let (up, down) = (answer(b"").tuple(family), acknowledged(0).tuple(family));
    let mut conns = programs.hash::<Tuple, Conn>("conns");
    conns.insert(up, Conn { slot: UP, side: Conn::ENDPOINT }, 0).unwrap();
    conns.insert(down, Conn { slot: DOWN, side: Conn::CLIENT }, 0).unwrap();
    let known = Slot::OWN | Slot::PEER;
    let endpoint = Slot {
        mark: Mark { moved: 0, end: UP_WIRE }.pack(),
        flow: FLOW,
        own_next: 300,
        own_ack: UP_WIRE,
        own_edge: UP_WIRE + 60_000,
        peer_ack: 300,
        peer_edge: 30_000,
        known,
        ..Slot::default()
    };
    let client = Slot {
        flow: FLOW,
        own_next: DOWN_WIRE,
        own_ack: 900,
        own_edge: 900 + 8_000,
        peer_ack: DOWN_WIRE,
        peer_edge: DOWN_WIRE + 40_000,
        told_ack: DOWN_WIRE,
        own_scale: 3,
        peer_scale: 2,
        known,
        ..Slot::default()
    };
    let mut slots = programs.array::<Slot>("slots");
    slots.set(UP, endpoint, 0).unwrap();
    slots.set(DOWN, client, 0).unwrap();
    let flow = Flow {
        up,
        down,
        // The loopback interface, where nothing is sent in these runs.
        up_ifindex: 1,
        down_ifindex: 1,
        up_slot: UP,
        down_slot: DOWN,
        up_wire: UP_WIRE,
        down_wire: DOWN_WIRE,
        open: 1,
        ..Flow::default()
    };
    flows(&mut programs).set(FLOW, flow, 0).unwrap();
    Some(programs)
}

fn flows(programs: &mut Programs) -> Array<&mut MapData, Flow> {
    programs.array("flows")
}

fn mark(programs: &mut Programs) -> Mark {
    Mark::unpack(programs.array::<Slot>("slots").get(&UP, 0).unwrap().mark)
}

fn whole_chunks_become_packets_of_the_clients_connection(family: Family) {
    let Some(mut programs) = armed(family) else { return };
    let two = [CHUNK, CHUNK].concat();
    let outcome = programs.run("splice_in", &answer(&two), 0);
    let to_client = acknowledged(0).reversed();
    let expected = Segment {
        seq: DOWN_WIRE,
        ack: 900,
        // The local socket's offer of 8,000 bytes, in units of eight.
        window: 1_000,
        flags: ACK | PSH,
        payload: two.clone(),
        ..to_client
    };
    assert_eq!((outcome.verdict, outcome.segment), (REDIRECT, expected));
    let flow = flows(&mut programs).get(&FLOW, 0).unwrap();
    assert_eq!((flow.bytes, flow.chunks, flow.stop), (20, 2, Stop::None as u32));
    assert!(flow.first_ns > 0 && flow.last_ns >= flow.first_ns);
    assert_eq!(mark(&mut programs), Mark { moved: 20, end: UP_WIRE + 20 });

    // The next one stands behind it; the first, sent again, goes the same way again.
    let next = Segment { seq: UP_WIRE + 20, ..answer(CHUNK) };
    assert_eq!(programs.run("splice_in", &next, 0).segment.seq, DOWN_WIRE + 20);
    let again = programs.run("splice_in", &answer(&two), 0);
    assert_eq!((again.verdict, again.segment.seq), (REDIRECT, DOWN_WIRE));
    assert_eq!(flows(&mut programs).get(&FLOW, 0).unwrap().bytes, 30, "counted once");
}

fn each_packet_goes_by_the_hop_of_its_connection(family: Family) {
    for (hop, mark) in [(Slot::NEIGHBOUR, MARK_DONE), (Slot::PEER_DEVICE, 0)] {
        let Some(mut programs) = armed(family) else { return };
        let mut slots = programs.array::<Slot>("slots");
        for (index, frame) in [(UP, [0x0101; 6]), (DOWN, [0x0202; 6])] {
            let slot = slots.get(&index, 0).unwrap();
            slots.set(index, Slot { hop, frame, ..slot }, 0).unwrap();
        }
        let moved = programs.run("splice_in", &answer(CHUNK), 0);
        assert_eq!((moved.verdict, moved.frame, moved.mark), (REDIRECT, [2; 12], mark));
        let told = programs.run("splice_in", &acknowledged(10), 0);
        assert_eq!((told.verdict, told.frame, told.mark), (REDIRECT, [1; 12], mark));
    }
    let Some(mut programs) = armed(family) else { return };
    let left = programs.run("splice_in", &answer(b"0\r\n\r\n"), 0);
    assert_eq!((left.verdict, left.frame), (NEXT, FRAME), "what is not moved keeps its own");
}

fn what_is_not_whole_chunks_goes_to_the_local_socket(family: Family) {
    let cases: [(&[u8], Stop); 6] = [
        (b"0\r\n\r\n", Stop::Last),
        (b"5\r\nhello\r\n0\r\n\r\n", Stop::Last),
        (b"5\r\nhel", Stop::Cut),
        (b"5\r\nhello\r\n5", Stop::Cut),
        (b"no chunk, but longer than a size line\r\n", Stop::Framing),
        (b"5\r\nhello!\n0123456789abcdef", Stop::Framing),
    ];
    for (payload, why) in cases {
        let Some(mut programs) = armed(family) else { return };
        let segment = answer(payload);
        let outcome = programs.run("splice_in", &segment, 0);
        let text = String::from_utf8_lossy(payload);
        assert_eq!((outcome.verdict, outcome.segment), (NEXT, segment), "{text}");
        let flow = flows(&mut programs).get(&FLOW, 0).unwrap();
        assert_eq!((flow.bytes, flow.stop), (0, why as u32), "{text}");
        // From here on user space has the stream, until it arms again.
        assert_eq!(mark(&mut programs), Mark { moved: 0, end: UP_WIRE + payload.len() as u32 });
        let next = Segment { seq: UP_WIRE + payload.len() as u32, ..answer(CHUNK) };
        assert_eq!(programs.run("splice_in", &next, 0).verdict, NEXT, "{text}");
    }
}

fn a_local_socket_never_learns_of_moved_bytes(family: Family) {
    let Some(mut programs) = armed(family) else { return };
    programs.run("splice_in", &answer(CHUNK), 0);
    // The end of the answer comes behind them, for the local socket in their place.
    let end = Segment { seq: UP_WIRE + 10, ..answer(b"0\r\n\r\n") };
    let outcome = programs.run("splice_in", &end, 0);
    assert_eq!((outcome.verdict, outcome.segment.seq), (NEXT, UP_WIRE));
    // And what it sends on to the client goes behind them.
    let sent = Segment { seq: DOWN_WIRE, ack: 900, ..acknowledged(0).reversed() };
    let sent = Segment { payload: b"0\r\n\r\n".to_vec(), ..sent };
    let outcome = programs.run("splice_out", &sent, 0);
    assert_eq!((outcome.verdict, outcome.segment.seq), (NEXT, DOWN_WIRE + 10));
    assert_eq!(outcome.segment.payload, sent.payload);
}

/// Programs with a flow that has moved one chunk, on connections that have moved `SHIFT`
/// bytes before, and the end of the answer with the local socket.
fn one_chunk_after_others(family: Family) -> Option<Programs> {
    let mut programs = armed(family)?;
    let flow = flows(&mut programs).get(&FLOW, 0).unwrap();
    let shifted = Flow { up_shift: SHIFT, down_shift: SHIFT, ..flow };
    flows(&mut programs).set(FLOW, shifted, 0).unwrap();
    let mut slots = programs.array::<Slot>("slots");
    let slot = slots.get(&UP, 0).unwrap();
    let mark = Mark { moved: SHIFT, end: UP_WIRE }.pack();
    slots.set(UP, Slot { mark, ..slot }, 0).unwrap();
    assert_eq!(programs.run("splice_in", &answer(CHUNK), 0).verdict, REDIRECT);
    let end = Segment { seq: UP_WIRE + 10, ..answer(b"0\r\n\r\n") };
    assert_eq!(programs.run("splice_in", &end, 0).verdict, NEXT);
    Some(programs)
}

const SHIFT: u32 = 7;

fn what_is_sent_again_across_the_end_of_the_moved_bytes_is_cut_there(family: Family) {
    let Some(mut programs) = one_chunk_after_others(family) else { return };
    let again = answer(&[CHUNK, b"0\r\n\r\n"].concat());
    let outcome = programs.run("splice_in", &again, 0);
    let expected = Segment {
        seq: DOWN_WIRE,
        ack: 900,
        window: 1_000,
        flags: ACK,
        payload: CHUNK.to_vec(),
        ..acknowledged(0).reversed()
    };
    assert_eq!((outcome.verdict, outcome.segment), (REDIRECT, expected));
}

fn what_is_sent_again_from_before_the_moved_bytes_is_cut_there(family: Family) {
    let Some(mut programs) = one_chunk_after_others(family) else { return };
    let again = Segment { seq: UP_WIRE - 4, ..answer(&[b"head", CHUNK].concat()) };
    let outcome = programs.run("splice_in", &again, 0);
    let kept = Segment { flags: ACK, payload: b"head".to_vec(), ..again };
    let expected = Segment { seq: UP_WIRE - 4 - SHIFT, ..kept };
    assert_eq!((outcome.verdict, outcome.segment), (NEXT, expected));
}

fn what_the_local_socket_sends_again_across_the_moved_bytes_is_cut_there(family: Family) {
    let Some(mut programs) = one_chunk_after_others(family) else { return };
    let again = Segment {
        seq: DOWN_WIRE - SHIFT - 4,
        ack: 900,
        flags: ACK | PSH,
        payload: b"head0\r\n\r\n".to_vec(),
        ..acknowledged(0).reversed()
    };
    let outcome = programs.run("splice_out", &again, 0);
    let kept = Segment { flags: ACK, payload: b"head".to_vec(), ..again };
    assert_eq!((outcome.verdict, outcome.segment), (NEXT, Segment { seq: DOWN_WIRE - 4, ..kept }));
}

fn a_clients_acknowledgement_reaches_the_endpoint(family: Family) {
    let Some(mut programs) = armed(family) else { return };
    programs.run("splice_in", &answer(&[CHUNK, CHUNK].concat()), 0);
    let outcome = programs.run("splice_in", &Segment { window: 5_000, ..acknowledged(20) }, 0);
    let to_endpoint = answer(b"").reversed();
    let expected = Segment {
        seq: 300,
        ack: UP_WIRE + 20,
        flags: ACK,
        // The client's room, 5,000 in units of four, is the smaller one.
        window: 20_000,
        ..to_endpoint
    };
    assert_eq!((outcome.verdict, outcome.segment), (REDIRECT, expected));
}

fn nothing_is_moved_beyond_the_clients_window(family: Family) {
    let Some(mut programs) = armed(family) else { return };
    let mut slots = programs.array::<Slot>("slots");
    let client = slots.get(&DOWN, 0).unwrap();
    slots.set(DOWN, Slot { peer_edge: DOWN_WIRE + 9, ..client }, 0).unwrap();
    let outcome = programs.run("splice_in", &answer(CHUNK), 0);
    assert_eq!((outcome.verdict, outcome.segment), (NEXT, answer(CHUNK)));
    assert_eq!(flows(&mut programs).get(&FLOW, 0).unwrap().stop, Stop::Window as u32);
}

fn a_flow_that_is_not_open_moves_nothing(family: Family) {
    let Some(mut programs) = armed(family) else { return };
    let flow = flows(&mut programs).get(&FLOW, 0).unwrap();
    flows(&mut programs).set(FLOW, Flow { open: 0, ..flow }, 0).unwrap();
    let outcome = programs.run("splice_in", &answer(CHUNK), 0);
    assert_eq!((outcome.verdict, outcome.segment), (NEXT, answer(CHUNK)));
    assert_eq!(mark(&mut programs), Mark { moved: 0, end: UP_WIRE + 10 });
}
