// Draws a frame's points, as squares or as quads of a surface, with a static mesh: four vertices per
// point, identified by SV_VertexID. Geometry shaders and procedural draws lose an eye on devices. Point
// sprites fetch each point once instead of four times (on lavapipe: same picture, 45 % of the processor
// time), but Direct3D 11 has none, and Vulkan's need the device feature largePoints, untested with
// Unity. Writes depth, which the headset's reprojection needs.
Shader "Holocast/Points"
{
    SubShader
    {
        PackageRequirements { "com.unity.render-pipelines.universal": "12.0" }
        Tags
        {
            "RenderPipeline" = "UniversalPipeline"
            "RenderType" = "Opaque"
            "Queue" = "Geometry"
            "DisableBatching" = "True"
            "IgnoreProjector" = "True"
        }
        Cull Off
        ZWrite On
        ZTest LEqual

        HLSLINCLUDE
        #pragma target 4.5
        #pragma multi_compile_instancing
        #pragma multi_compile_local _ HOLOCAST_CLOUD HOLOCAST_SURFACE
        #include "Packages/com.unity.render-pipelines.universal/ShaderLibrary/Core.hlsl"
        #include "Packages/dev.holocast.client/Shaders/HolocastPointsPass.hlsl"
        ENDHLSL

        Pass
        {
            Name "Forward"
            Tags { "LightMode" = "UniversalForwardOnly" }

            HLSLPROGRAM
            #pragma vertex Vertex
            #pragma fragment Fragment
            ENDHLSL
        }

        // With depth priming, URP draws only what its depth passes have drawn.
        Pass
        {
            Name "DepthOnly"
            Tags { "LightMode" = "DepthOnly" }
            ColorMask R

            HLSLPROGRAM
            #pragma vertex Vertex
            #pragma fragment DepthFragment
            ENDHLSL
        }

        Pass
        {
            Name "DepthNormalsOnly"
            Tags { "LightMode" = "DepthNormalsOnly" }

            HLSLPROGRAM
            #pragma vertex NormalVertex
            #pragma fragment NormalFragment
            ENDHLSL
        }

        Pass
        {
            Name "ShadowCaster"
            Tags { "LightMode" = "ShadowCaster" }
            ColorMask 0

            HLSLPROGRAM
            #pragma vertex ShadowVertex
            #pragma fragment DepthFragment
            ENDHLSL
        }
    }

    // Built-in pipeline
    SubShader
    {
        Tags { "RenderType" = "Opaque" "Queue" = "Geometry" "DisableBatching" = "True" "IgnoreProjector" = "True" }
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
            #pragma multi_compile_local _ HOLOCAST_CLOUD HOLOCAST_SURFACE
            #include "UnityCG.cginc"
            #include "Packages/dev.holocast.client/Shaders/HolocastPointsPass.hlsl"
            ENDCG
        }
    }
}
