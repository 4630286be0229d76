// 360° video around the eye: an infinitely distant box without vertex data (corners by
// SV_VertexID). Each pixel samples the picture by its direction. Being at the far plane, it needs
// no depth passes, and is drawn after the skybox, which would cover it: Unity draws that between
// the queues 2500 and 2501.
Shader "Holocast/Sphere"
{
    SubShader
    {
        PackageRequirements { "com.unity.render-pipelines.universal": "12.0" }
        Tags
        {
            "RenderPipeline" = "UniversalPipeline"
            "RenderType" = "Background"
            "Queue" = "Transparent-499"
            "DisableBatching" = "True"
            "IgnoreProjector" = "True"
        }
        Cull Off
        ZWrite On
        ZTest LEqual

        Pass
        {
            Tags { "LightMode" = "UniversalForwardOnly" }

            HLSLPROGRAM
            #pragma target 4.5
            #pragma vertex Vertex
            #pragma fragment Fragment
            #pragma multi_compile_instancing
            #include "Packages/com.unity.render-pipelines.universal/ShaderLibrary/Core.hlsl"
            #include "Packages/dev.holocast.client/Shaders/HolocastSpherePass.hlsl"
            ENDHLSL
        }
    }

    // Built-in pipeline
    SubShader
    {
        Tags
        {
            "RenderType" = "Background"
            "Queue" = "Transparent-499"
            "DisableBatching" = "True"
            "IgnoreProjector" = "True"
        }
        Cull Off
        ZWrite On
        ZTest LEqual

        Pass
        {
            CGPROGRAM
            #pragma target 4.5
            #pragma vertex Vertex
            #pragma fragment Fragment
            #pragma multi_compile_instancing
            #include "UnityCG.cginc"
            #include "Packages/dev.holocast.client/Shaders/HolocastSpherePass.hlsl"
            ENDCG
        }
    }
}
