using Holocast.Native;

namespace Holocast
{
    /// <summary>How HolocastPoints draws frames.</summary>
    public enum HolocastLook
    {
        /// <summary>
        /// Neighbouring points of a camera's pixel grid are one surface. Frames without a grid and thinned frames
        /// are drawn as points.
        /// </summary>
        Surface,

        /// <summary>Each point is a square.</summary>
        Points,
    }

    // When surfaces are drawn.
    static class Looks
    {
        public static bool HasGrid(uint layout)
        {
            return layout == Abi.LayoutA || layout == Abi.LayoutW;
        }

        // step: every step-th point of the frame is drawn.
        public static bool IsSurface(HolocastLook look, uint layout, uint step)
        {
            return look == HolocastLook.Surface && HasGrid(layout) && step == 1;
        }

        // The look at a level of the point budget, whose first level replaces surfaces by points.
        public static HolocastLook At(HolocastLook look, int level)
        {
            return level > 0 ? HolocastLook.Points : look;
        }

        // Levels of the point budget before it requests fewer points. grids: a camera has a grid.
        public static int Levels(HolocastLook look, bool grids)
        {
            return look == HolocastLook.Surface && grids ? 1 : 0;
        }
    }
}
