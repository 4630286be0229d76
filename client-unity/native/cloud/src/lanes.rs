//! Four 16-bit lanes in the SIMD instructions of each processor.

#[cfg(target_arch = "x86_64")]
mod arch {
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    pub struct Lanes(__m128i);

    impl Lanes {
        #[inline(always)]
        pub fn new(v: u64) -> Self {
            // SAFETY: x86_64 has SSE2.
            unsafe { Lanes(_mm_cvtsi64_si128(v as i64)) }
        }
        #[inline(always)]
        pub fn bits(self) -> u64 {
            // SAFETY: x86_64 has SSE2.
            unsafe { _mm_cvtsi128_si64(self.0) as u64 }
        }
        #[inline(always)]
        pub fn min(self, o: Self) -> Self {
            // SAFETY: x86_64 has SSE2.
            unsafe { Lanes(_mm_min_epi16(self.0, o.0)) }
        }
        #[inline(always)]
        pub fn max(self, o: Self) -> Self {
            // SAFETY: x86_64 has SSE2.
            unsafe { Lanes(_mm_max_epi16(self.0, o.0)) }
        }
        #[inline(always)]
        pub fn add(self, o: Self) -> Self {
            // SAFETY: x86_64 has SSE2.
            unsafe { Lanes(_mm_add_epi16(self.0, o.0)) }
        }
        #[inline(always)]
        pub fn sub(self, o: Self) -> Self {
            // SAFETY: x86_64 has SSE2.
            unsafe { Lanes(_mm_sub_epi16(self.0, o.0)) }
        }
    }
}

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod arch {
    use std::arch::aarch64::*;

    #[derive(Clone, Copy)]
    pub struct Lanes(int16x4_t);

    impl Lanes {
        #[inline(always)]
        pub fn new(v: u64) -> Self {
            // SAFETY: NEON is enabled by the cfg above.
            unsafe { Lanes(vcreate_s16(v)) }
        }
        #[inline(always)]
        pub fn bits(self) -> u64 {
            // SAFETY: NEON is enabled by the cfg above.
            unsafe { vget_lane_u64::<0>(vreinterpret_u64_s16(self.0)) }
        }
        #[inline(always)]
        pub fn min(self, o: Self) -> Self {
            // SAFETY: NEON is enabled by the cfg above.
            unsafe { Lanes(vmin_s16(self.0, o.0)) }
        }
        #[inline(always)]
        pub fn max(self, o: Self) -> Self {
            // SAFETY: NEON is enabled by the cfg above.
            unsafe { Lanes(vmax_s16(self.0, o.0)) }
        }
        #[inline(always)]
        pub fn add(self, o: Self) -> Self {
            // SAFETY: NEON is enabled by the cfg above.
            unsafe { Lanes(vadd_s16(self.0, o.0)) }
        }
        #[inline(always)]
        pub fn sub(self, o: Self) -> Self {
            // SAFETY: NEON is enabled by the cfg above.
            unsafe { Lanes(vsub_s16(self.0, o.0)) }
        }
    }
}

/// Portable version, for other processors and to test the ones above.
#[cfg(any(test, not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))))]
mod plain {
    #[derive(Clone, Copy)]
    pub struct Lanes([i16; 4]);

    impl Lanes {
        pub fn new(v: u64) -> Self {
            Lanes([v as i16, (v >> 16) as i16, (v >> 32) as i16, (v >> 48) as i16])
        }
        pub fn bits(self) -> u64 {
            self.0.iter().rev().fold(0, |v, l| v << 16 | u64::from(*l as u16))
        }
        fn map(self, o: Self, f: impl Fn(i16, i16) -> i16) -> Self {
            Lanes(std::array::from_fn(|i| f(self.0[i], o.0[i])))
        }
        pub fn min(self, o: Self) -> Self {
            self.map(o, i16::min)
        }
        pub fn max(self, o: Self) -> Self {
            self.map(o, i16::max)
        }
        pub fn add(self, o: Self) -> Self {
            self.map(o, i16::wrapping_add)
        }
        pub fn sub(self, o: Self) -> Self {
            self.map(o, i16::wrapping_sub)
        }
    }
}

#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
pub(crate) use arch::Lanes;
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon"))))]
pub(crate) use plain::Lanes;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn same_as_plain(a: u64, b: u64) {
            let (x, y) = (super::Lanes::new(a), super::Lanes::new(b));
            let (p, q) = (super::plain::Lanes::new(a), super::plain::Lanes::new(b));
            prop_assert_eq!(x.bits(), a);
            prop_assert_eq!(x.min(y).bits(), p.min(q).bits());
            prop_assert_eq!(x.max(y).bits(), p.max(q).bits());
            prop_assert_eq!(x.add(y).bits(), p.add(q).bits());
            prop_assert_eq!(x.sub(y).bits(), p.sub(q).bits());
        }
    }
}
