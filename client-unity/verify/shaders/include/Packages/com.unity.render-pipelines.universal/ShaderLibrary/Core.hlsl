// The parts of URP's Core.hlsl that the shaders use, for machines without URP. They have the names
// of the built-in pipeline's.
#include "UnityCG.cginc"
