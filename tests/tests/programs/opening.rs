//! SYNs: what is noted of them, and what is taken out.

use gateway_common::splice::{Conn, Handshake, MARK_UPSTREAM, Tuple};

use super::segment::{ACK, FRAME, Family, SYN, Segment};
use super::{NEXT, Programs};

in_both_families!(
    a_clients_syn_is_noted_and_loses_what_cannot_be_translated,
    a_window_is_scaled_only_if_both_sides_offer_it,
    connections_of_others_are_left_alone,
    options_that_have_to_stay_rule_a_splice_out,
    a_syn_that_comes_twice_changes_nothing
);

const MSS: &[u8] = &[2, 4, 5, 180];
const SCALE: &[u8] = &[3, 3, 7];
const SACK: &[u8] = &[4, 2];
const TIMESTAMPS: &[u8] = &[8, 10, 0, 0, 0, 1, 0, 0, 0, 0];
const NOP: &[u8] = &[1];

/// A client's SYN, as Linux writes it.
fn syn() -> Segment {
    let options = [MSS, SACK, TIMESTAMPS, NOP, SCALE].concat();
    Segment { flags: SYN, ack: 0, options, ..Segment::default() }
}

/// Ethernet addresses as they stand in a frame.
fn bytes(frame: [u16; 6]) -> Vec<u8> {
    frame.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn listening(family: Family) -> Option<Programs> {
    let mut programs = Programs::load(family)?;
    programs.listen(Segment::default().destination.0, Segment::default().destination.1);
    Some(programs)
}

fn a_clients_syn_is_noted_and_loses_what_cannot_be_translated(family: Family) {
    let Some(mut programs) = listening(family) else { return };
    let outcome = programs.run("splice_in", &syn(), 0);
    let blank = [MSS, &[1; 13], SCALE].concat();
    assert_eq!((outcome.verdict, outcome.segment), (NEXT, Segment { options: blank, ..syn() }));
    let noted = programs.handshake(&syn()).unwrap();
    let expected =
        Handshake { peer_isn: 1000, peer_mss: 1460, peer_scale: 7, seen: Handshake::PEER, ..noted };
    assert_eq!(noted, expected);
    let (ours, theirs) = FRAME.split_at(6);
    assert_eq!(bytes(noted.frame), [theirs, ours].concat(), "of what goes back");
    assert!(!noted.is_complete(), "the gateway's own SYN is still to come");

    let answer = Segment { flags: SYN | ACK, seq: 7000, ..syn().reversed() };
    let outcome = programs.run("splice_out", &answer, 0);
    assert_eq!(outcome.segment.options, [MSS, &[1; 13], SCALE].concat());
    let noted = programs.handshake(&syn()).unwrap();
    assert_eq!((noted.own_isn, noted.own_scale, noted.peer_scale), (7000, 7, 7));
    assert!(noted.is_complete());
}

fn a_window_is_scaled_only_if_both_sides_offer_it(family: Family) {
    let Some(mut programs) = listening(family) else { return };
    programs.run("splice_in", &syn(), 0);
    let answer = Segment { flags: SYN | ACK, options: MSS.to_vec(), ..syn().reversed() };
    programs.run("splice_out", &answer, 0);
    let noted = programs.handshake(&syn()).unwrap();
    assert_eq!((noted.own_scale, noted.peer_scale), (0, 0));
}

fn connections_of_others_are_left_alone(family: Family) {
    let Some(mut programs) = Programs::load(family) else { return };
    for program in ["splice_in", "splice_out"] {
        let outcome = programs.run(program, &syn(), 0);
        assert_eq!((outcome.verdict, outcome.segment), (NEXT, syn()), "{program}");
    }
    assert_eq!(programs.handshake(&syn()), None);
    // The gateway's own connection to an endpoint is known by its mark.
    let own = syn().reversed();
    assert_ne!(programs.run("splice_out", &own, MARK_UPSTREAM).segment, own);
    let noted = programs.handshake(&syn()).unwrap();
    assert_eq!((noted.own_isn, noted.seen), (1000, Handshake::OWN));
}

fn options_that_have_to_stay_rule_a_splice_out(family: Family) {
    let Some(mut programs) = listening(family) else { return };
    // A signature of the segment (RFC 2385), and an option that runs over the end.
    let signature = [MSS, &[19, 18], &[7; 16], NOP, NOP].concat();
    let beyond = [MSS, &[8, 200, 0, 0]].concat();
    for options in [signature, beyond] {
        let segment = Segment { options, ..syn() };
        let outcome = programs.run("splice_in", &segment, 0);
        assert_eq!((outcome.verdict, &outcome.segment), (NEXT, &segment));
        assert_ne!(programs.handshake(&segment).unwrap().doubt, 0, "{segment:?}");
    }
}

fn a_syn_that_comes_twice_changes_nothing(family: Family) {
    let Some(mut programs) = listening(family) else { return };
    let tuple = syn().tuple(family);
    let conn = Conn { slot: 5, side: Conn::CLIENT };
    programs.run("splice_in", &syn(), 0);
    programs.run("splice_out", &Segment { flags: SYN | ACK, ..syn().reversed() }, 0);
    let noted = programs.handshake(&syn());
    programs.hash::<Tuple, Conn>("conns").insert(tuple, conn, 0).unwrap();
    let outcome = programs.run("splice_in", &syn(), 0);
    assert_ne!(outcome.segment, syn(), "its options must go all the same");
    assert_eq!(programs.handshake(&syn()), noted);
    assert_eq!(programs.hash::<Tuple, Conn>("conns").get(&tuple, 0).unwrap(), conn);
    // Another connection of the same addresses is another one.
    programs.run("splice_in", &Segment { seq: 9, ..syn() }, 0);
    assert!(programs.hash::<Tuple, Conn>("conns").get(&tuple, 0).is_err());
}
