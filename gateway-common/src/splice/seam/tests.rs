use proptest::prelude::*;

use super::*;

/// A stream and its seam, with numbers that may wrap anywhere.
fn seams() -> impl Strategy<Value = Seam> {
    (any::<[u32; 4]>(), 0..1_u32 << 30).prop_map(
        |([up_wire, down_wire, up_shift, down_shift], length)| Seam {
            up_wire,
            down_wire,
            up_shift,
            down_shift,
            length,
            settled: false,
        },
    )
}

proptest! {
    /// What the local socket sends to the client keeps its order and leaves exactly the
    /// moved bytes' room free.
    #[test]
    fn client_sees_one_stream(seam in seams(), back in 1..1_u32 << 29, on in 0..1_u32 << 29) {
        let edge = seam.down_local();
        let before_seam = seam.to_client(edge.wrapping_sub(back));
        let after_seam = seam.to_client(edge.wrapping_add(on));
        prop_assert_eq!(before_seam, seam.down_wire.wrapping_sub(back));
        prop_assert_eq!(after_seam, seam.down_wire.wrapping_add(seam.length).wrapping_add(on));
    }

    /// An acknowledgement of what the local socket sent comes back as it was meant.
    #[test]
    fn acknowledgements_return_what_was_sent(seam in seams(), far in 0..1_u32 << 30) {
        for seq in [seam.down_local().wrapping_sub(far), seam.down_local().wrapping_add(far)] {
            let told = seam.ack_to_local(seam.to_client(seq));
            // At the seam itself the client may have any part of the moved bytes.
            prop_assert_eq!(told, seq);
        }
    }

    /// Whatever part of the moved bytes a client acknowledges, the local socket hears no
    /// more than what it has sent itself.
    #[test]
    fn moved_bytes_are_hidden_from_the_local_socket(seam in seams(), part in any::<u32>()) {
        let ack = seam.down_wire.wrapping_add(part % (seam.length + 1));
        prop_assert_eq!(seam.ack_to_local(ack), seam.down_local());
    }

    /// Every byte of the endpoint's stream has one place.
    #[test]
    fn endpoint_bytes_go_to_one_side(seam in seams(), at in 0..1_u32 << 30) {
        let inside = seam.up_wire.wrapping_add(at);
        let expected = if at < seam.length {
            From::Moved(seam.down_wire.wrapping_add(at))
        } else {
            From::Local(seam.up_local().wrapping_add(at - seam.length))
        };
        prop_assert_eq!(seam.from_endpoint(inside), expected);
        let earlier = seam.up_wire.wrapping_sub(at + 1);
        let expected = From::Local(seam.up_local().wrapping_sub(at + 1));
        prop_assert_eq!(seam.from_endpoint(earlier), expected);
    }

    /// The endpoint never hears that a byte has arrived that neither has.
    #[test]
    fn endpoint_is_never_told_too_much(
        seam in seams(),
        own in 0..1_u32 << 29,
        client in 0..1_u32 << 30,
    ) {
        let own_ack = seam.up_local().wrapping_add(own);
        let client_ack = seam.down_wire.wrapping_add(client);
        let told = seam.ack_to_endpoint(own_ack, client_ack).wrapping_sub(seam.up_wire);
        let arrived = client.min(seam.length);
        if arrived < seam.length {
            prop_assert_eq!(told, arrived);
        } else {
            prop_assert_eq!(told, seam.length + own);
        }
    }

    /// Once all is acknowledged, only the sums of the shifts matter, at any distance.
    #[test]
    fn a_settled_seam_is_a_plain_shift(seam in seams(), seq in any::<u32>(), client in any::<u32>()) {
        let seam = Seam { settled: true, ..seam };
        let down = seam.down_shift.wrapping_add(seam.length);
        let up = seam.up_shift.wrapping_add(seam.length);
        prop_assert_eq!(seam.to_client(seq), seq.wrapping_add(down));
        prop_assert_eq!(seam.ack_to_local(seq), seq.wrapping_sub(down));
        prop_assert_eq!(seam.from_endpoint(seq), From::Local(seq.wrapping_sub(up)));
        prop_assert_eq!(seam.ack_to_endpoint(seq, client), seq.wrapping_add(up));
    }

    /// Before anything was moved a seam changes nothing but by the older shifts.
    #[test]
    fn an_empty_seam_is_invisible(seam in seams(), seq in 0..1_u32 << 30, client in any::<u32>()) {
        let seam = Seam { length: 0, ..seam };
        let local = seam.up_local().wrapping_sub(seq);
        prop_assert_eq!(seam.ack_to_endpoint(local, client), local.wrapping_add(seam.up_shift));
        let local = seam.down_local().wrapping_add(seq);
        prop_assert_eq!(seam.to_client(local), local.wrapping_add(seam.down_shift));
    }
}
