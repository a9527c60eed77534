//! What the fuzz targets share: cutting an input into pieces.

/// Takes the first byte of an input as the seed of a cut, and returns the rest
/// whole and in pieces.
pub fn cut(input: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let Some((&seed, whole)) = input.split_first() else { return (input, Vec::new()) };
    let mut state = u32::from(seed) | 1;
    let mut rest = whole;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        // A plain linear congruence: the sizes only have to vary.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let len = (state >> 24) as usize % 9 + usize::from(seed >> 7) * 60 + 1;
        let (piece, tail) = rest.split_at(len.min(rest.len()));
        pieces.push(piece);
        rest = tail;
    }
    (whole, pieces)
}
