// The parts of Unity's UnityCG.cginc that the shaders use (built-in pipeline, Direct3D 11),
// rewritten from its documentation. Single-pass instanced rendering draws each object once with
// twice the instances, even ones for the left eye and odd ones for the right, into the two layers
// of one target. Multiview draws it once for two views. Without either, each eye is a pass of its
// own, whose index is a uniform.
#ifndef UNITY_CG_INCLUDED
#define UNITY_CG_INCLUDED

#define half min16float
#define half2 min16float2
#define half3 min16float3
#define half4 min16float4
#if defined(HOLOCAST_FULL_PRECISION)
#undef half
#undef half2
#undef half3
#undef half4
#define half float
#define half2 float2
#define half3 float3
#define half4 float4
#endif
#define fixed half
#define fixed4 half4

cbuffer UnityPerCamera
{
    float4 _ScreenParams; // x, y: size of the target in pixels
};

cbuffer UnityPerDraw
{
    float4x4 unity_ObjectToWorld;
};

cbuffer UnityPerFrame
{
    float4x4 glstate_matrix_projection;
    float4x4 unity_MatrixV;
    float4x4 unity_MatrixVP;
    #if !defined(STEREO_INSTANCING_ON) && !defined(STEREO_MULTIVIEW_ON)
    int unity_StereoEyeIndex;
    #endif
};

#if defined(STEREO_MULTIVIEW_ON) && defined(HOLOCAST_FULL_PRECISION)
#define UNITY_VERTEX_INPUT_INSTANCE_ID uint viewID : SV_ViewID;
#elif defined(STEREO_INSTANCING_ON) || defined(INSTANCING_ON)
#define UNITY_VERTEX_INPUT_INSTANCE_ID uint instanceID : SV_InstanceID;
#else
#define UNITY_VERTEX_INPUT_INSTANCE_ID
#endif

#if defined(STEREO_INSTANCING_ON) || defined(STEREO_MULTIVIEW_ON)
cbuffer UnityStereoGlobals
{
    float4x4 unity_StereoMatrixP[2];
    float4x4 unity_StereoMatrixV[2];
    float4x4 unity_StereoMatrixVP[2];
};
static uint unity_StereoEyeIndex;
#define UNITY_MATRIX_P unity_StereoMatrixP[unity_StereoEyeIndex]
#define UNITY_MATRIX_V unity_StereoMatrixV[unity_StereoEyeIndex]
#define UNITY_MATRIX_VP unity_StereoMatrixVP[unity_StereoEyeIndex]
#else
#define UNITY_MATRIX_P glstate_matrix_projection
#define UNITY_MATRIX_V unity_MatrixV
#define UNITY_MATRIX_VP unity_MatrixVP
#endif

#if defined(STEREO_MULTIVIEW_ON)
#if defined(HOLOCAST_FULL_PRECISION)
#define UNITY_SETUP_INSTANCE_ID(input) unity_StereoEyeIndex = (input).viewID
#else
// Unity translates this for Vulkan and OpenGL ES after Microsoft's compiler.
cbuffer OVR_multiview
{
    uint gl_ViewID;
};
#define UNITY_SETUP_INSTANCE_ID(input) unity_StereoEyeIndex = gl_ViewID
#endif
#define UNITY_VERTEX_OUTPUT_STEREO float stereoTargetEyeIndexAsBlendIdx0 : BLENDWEIGHT0;
#define UNITY_INITIALIZE_VERTEX_OUTPUT_STEREO(output) \
    (output).stereoTargetEyeIndexAsBlendIdx0 = float(unity_StereoEyeIndex)
#define UNITY_SETUP_STEREO_EYE_INDEX_POST_VERTEX(input) \
    unity_StereoEyeIndex = uint((input).stereoTargetEyeIndexAsBlendIdx0 + 0.5)
#elif defined(STEREO_INSTANCING_ON)
#define UNITY_SETUP_INSTANCE_ID(input) unity_StereoEyeIndex = (input).instanceID & 1u
#define UNITY_VERTEX_OUTPUT_STEREO uint stereoTargetEyeIndexAsRTArrayIdx : SV_RenderTargetArrayIndex;
#define UNITY_INITIALIZE_VERTEX_OUTPUT_STEREO(output) (output).stereoTargetEyeIndexAsRTArrayIdx = unity_StereoEyeIndex
#define UNITY_SETUP_STEREO_EYE_INDEX_POST_VERTEX(input) unity_StereoEyeIndex = (input).stereoTargetEyeIndexAsRTArrayIdx
#else
#define UNITY_SETUP_INSTANCE_ID(input)
#define UNITY_VERTEX_OUTPUT_STEREO
#define UNITY_INITIALIZE_VERTEX_OUTPUT_STEREO(output)
#define UNITY_SETUP_STEREO_EYE_INDEX_POST_VERTEX(input)
#endif

#if UNITY_REVERSED_Z
#define UNITY_NEAR_CLIP_VALUE 1.0
#else
#define UNITY_NEAR_CLIP_VALUE 0.0
#endif

#endif
