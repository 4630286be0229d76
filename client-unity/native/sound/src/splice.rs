//! Joins decoded packets without clicks. Same algorithm as internal/jitter/splice.go.

/// Limits of the period removed or repeated, samples: 2 to 5 ms at 48 kHz.
const SHORTEST: usize = 96;
const LONGEST: usize = 240;
const CROSSFADE: usize = 240;

/// Removes or repeats one period of the sound, where it is most similar to itself a period later.
#[derive(Debug)]
pub(crate) struct Splicer {
    channels: usize,
    /// The last samples of the output, interleaved.
    past: Vec<f32>,
}

impl Splicer {
    pub fn new(channels: usize) -> Self {
        Splicer { channels, past: vec![0.0; LONGEST * channels] }
    }

    /// Remembers output.
    pub fn note(&mut self, x: &[f32]) {
        let n = self.past.len();
        if x.len() >= n {
            self.past.copy_from_slice(&x[x.len() - n..]);
        } else {
            self.past.rotate_left(x.len());
            self.past[n - x.len()..].copy_from_slice(x);
        }
    }

    /// Removes a period from x. Returns its length; 0 if x is too short.
    pub fn shorten(&mut self, x: &mut Vec<f32>) -> usize {
        let period = self.period(x, |p| &x[p * self.channels..]);
        if period > 0 {
            let from = x[..CROSSFADE * self.channels].to_vec();
            x.drain(..period * self.channels);
            self.fade_from(&from, x);
        }
        period
    }

    /// Repeats the last period of past output before x. Returns its length; 0 if x is too short.
    pub fn lengthen(&mut self, x: &mut Vec<f32>) -> usize {
        let both: Vec<f32> = self.past.iter().chain(x.iter()).copied().collect();
        let at = |p: usize| self.past.len() - p * self.channels;
        let period = self.period(x, |p| &both[at(p)..]);
        if period > 0 {
            let from = x[..CROSSFADE * self.channels].to_vec();
            *x = both[at(period)..].to_vec();
            self.fade_from(&from, x);
        }
        period
    }

    /// The period for which `shifted` is most similar to x.
    fn period<'a>(&self, x: &[f32], shifted: impl Fn(usize) -> &'a [f32]) -> usize {
        let n = CROSSFADE * self.channels;
        if x.len() < n + LONGEST * self.channels {
            return 0;
        }
        let difference = |p: usize| x.iter().zip(shifted(p)).take(n).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
        (SHORTEST..=LONGEST).map(|p| (difference(p), p)).min_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |(_, p)| p)
    }

    /// Fades from `from` to x at the beginning of x.
    fn fade_from(&self, from: &[f32], x: &mut [f32]) {
        for (i, (s, f)) in x.iter_mut().zip(from).enumerate() {
            let w = ((i / self.channels) as f32 + 0.5) / CROSSFADE as f32;
            *s = f * (1.0 - w) + *s * w;
        }
    }

    /// Makes x continue past output: the mirrored past fades out while x fades in.
    pub fn join(&self, x: &mut [f32]) {
        let n = (x.len() / self.channels).min(CROSSFADE).min(LONGEST);
        for i in 0..n {
            let w = (i as f32 + 0.5) / n as f32;
            for c in 0..self.channels {
                let s = &mut x[i * self.channels + c];
                *s = *s * w + self.past[self.past.len() - (i + 1) * self.channels + c] * (1.0 - w);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steepest(x: &[f32]) -> f32 {
        x.windows(2).map(|w| (w[1] - w[0]).abs()).fold(0.0, f32::max)
    }

    #[test]
    fn splices_a_tone_without_a_click() {
        let tone: Vec<f32> = (0..960).map(|i| (0.06 * i as f32).sin()).collect();
        let mut s = Splicer::new(1);
        s.note(&tone[..480]);
        for lengthen in [false, true] {
            let mut x = tone[480..].to_vec();
            let n = if lengthen { s.lengthen(&mut x) } else { s.shorten(&mut x) };
            assert!((SHORTEST..=LONGEST).contains(&n));
            assert_eq!(x.len(), if lengthen { 480 + n } else { 480 - n });
            let all: Vec<f32> = tone[..480].iter().chain(&x).copied().collect();
            assert!(steepest(&all) < 0.07, "{}", steepest(&all));
        }
        let mut short = vec![0.0; 100];
        assert_eq!((s.shorten(&mut short), s.lengthen(&mut short), short.len()), (0, 0, 100));
    }
}
