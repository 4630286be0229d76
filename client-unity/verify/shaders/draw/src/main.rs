//! draw SHADERS SCENE CAMERA OUT [COUNT]
//!
//! Draws a scene's mesh renderers with the package's shaders, compiled to SPIR-V, on any Vulkan
//! device (the tests use Mesa's software renderer lavapipe). Writes OUT.0.ppm and, for two eyes,
//! OUT.1.ppm. Two eyes are drawn as on a headset: one draw call of two instances, or of two views,
//! into the two layers of one target. With COUNT, draws that many more times and prints the mean
//! processor times, over all threads, of a picture and of the compute shaders in milliseconds.

mod scene;
mod spirv;

use ash::{vk, Device, Entry, Instance};
use scene::{Camera, Matrix, Object};
use spirv::Kind;
use std::collections::HashMap;
use std::error::Error;
use std::ffi::CString;
use std::path::{Path, PathBuf};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const COLOR: vk::Format = vk::Format::R8G8B8A8_UNORM;
const DEPTH: vk::Format = vk::Format::D32_SFLOAT;

struct Gpu {
    _entry: Entry,
    instance: Instance,
    device: Device,
    physical: vk::PhysicalDevice,
    queue: vk::Queue,
    pool: vk::CommandPool,
}

struct Buffer {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    size: u64,
}

impl Gpu {
    fn open() -> Result<Self> {
        // SAFETY: the handles below are created from one another, used only on this thread, and
        // released at process exit.
        unsafe {
            let entry = Entry::load()?;
            let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
            let instance =
                entry.create_instance(&vk::InstanceCreateInfo::default().application_info(&application), None)?;
            let devices = instance.enumerate_physical_devices()?;
            // Prefer software rendering, which is the same on all machines.
            let physical = devices
                .iter()
                .copied()
                .min_by_key(|d| instance.get_physical_device_properties(*d).device_type != vk::PhysicalDeviceType::CPU)
                .ok_or("no Vulkan device: install mesa-vulkan-drivers")?;
            let properties = instance.get_physical_device_properties(physical);
            eprintln!("draw: {}", properties.device_name_as_c_str()?.to_string_lossy());
            let mut v11 = vk::PhysicalDeviceVulkan11Features::default().multiview(true);
            let mut v12 = vk::PhysicalDeviceVulkan12Features::default().shader_output_layer(true);
            let mut v13 = vk::PhysicalDeviceVulkan13Features::default().dynamic_rendering(true);
            let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&[1.0])];
            let info = vk::DeviceCreateInfo::default()
                .queue_create_infos(&queues)
                .push_next(&mut v11)
                .push_next(&mut v12)
                .push_next(&mut v13);
            let device = instance.create_device(physical, &info, None)?;
            let queue = device.get_device_queue(0, 0);
            let pool = device.create_command_pool(&vk::CommandPoolCreateInfo::default(), None)?;
            Ok(Self { _entry: entry, instance, device, physical, queue, pool })
        }
    }

    fn allocate(&self, needs: vk::MemoryRequirements, wants: vk::MemoryPropertyFlags) -> Result<vk::DeviceMemory> {
        // SAFETY: see open.
        unsafe {
            let types = self.instance.get_physical_device_memory_properties(self.physical);
            let index = (0..types.memory_type_count)
                .find(|i| {
                    needs.memory_type_bits >> i & 1 == 1
                        && types.memory_types[*i as usize].property_flags.contains(wants)
                })
                .ok_or("no suitable memory type")?;
            let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(index);
            Ok(self.device.allocate_memory(&info, None)?)
        }
    }

    fn buffer(&self, bytes: &[u8], size: u64, usage: vk::BufferUsageFlags) -> Result<Buffer> {
        let size = size.max(bytes.len() as u64).max(16);
        // SAFETY: see open; the mapped memory is at least as long as the copied data.
        unsafe {
            let buffer = self.device.create_buffer(&vk::BufferCreateInfo::default().size(size).usage(usage), None)?;
            let wants = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
            let memory = self.allocate(self.device.get_buffer_memory_requirements(buffer), wants)?;
            self.device.bind_buffer_memory(buffer, memory, 0)?;
            let at = self.device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())?;
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast(), bytes.len());
            self.device.unmap_memory(memory);
            Ok(Buffer { buffer, memory, size })
        }
    }

    fn image(
        &self, format: vk::Format, width: u32, height: u32, layers: u32, usage: vk::ImageUsageFlags,
    ) -> Result<(vk::Image, vk::ImageView)> {
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(format)
            .extent(vk::Extent3D { width, height, depth: 1 })
            .mip_levels(1)
            .array_layers(layers)
            .samples(vk::SampleCountFlags::TYPE_1)
            .usage(usage);
        // SAFETY: see open.
        unsafe {
            let image = self.device.create_image(&info, None)?;
            let memory =
                self.allocate(self.device.get_image_memory_requirements(image), vk::MemoryPropertyFlags::empty())?;
            self.device.bind_image_memory(image, memory, 0)?;
            let kind = if layers > 1 { vk::ImageViewType::TYPE_2D_ARRAY } else { vk::ImageViewType::TYPE_2D };
            let range = range(format, layers);
            let view = self.device.create_image_view(
                &vk::ImageViewCreateInfo::default()
                    .image(image)
                    .view_type(kind)
                    .format(format)
                    .subresource_range(range),
                None,
            )?;
            Ok((image, view))
        }
    }

    /// Records commands, executes them and waits.
    fn run(&self, record: impl FnOnce(vk::CommandBuffer)) -> Result<()> {
        // SAFETY: see open.
        unsafe {
            let info = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
            let commands = self.device.allocate_command_buffers(&info)?;
            self.device.begin_command_buffer(commands[0], &vk::CommandBufferBeginInfo::default())?;
            record(commands[0]);
            self.device.end_command_buffer(commands[0])?;
            self.device.queue_submit(
                self.queue,
                &[vk::SubmitInfo::default().command_buffers(&commands)],
                vk::Fence::null(),
            )?;
            self.device.queue_wait_idle(self.queue)?;
        }
        Ok(())
    }

    fn transition(
        &self, commands: vk::CommandBuffer, image: vk::Image, format: vk::Format, layers: u32, from: vk::ImageLayout,
        to: vk::ImageLayout,
    ) {
        let barrier = vk::ImageMemoryBarrier::default()
            .image(image)
            .old_layout(from)
            .new_layout(to)
            .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
            .dst_access_mask(vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE)
            .subresource_range(range(format, layers));
        let all = vk::PipelineStageFlags::ALL_COMMANDS;
        // SAFETY: see open.
        unsafe {
            self.device.cmd_pipeline_barrier(commands, all, all, vk::DependencyFlags::empty(), &[], &[], &[barrier])
        }
    }
}

fn range(format: vk::Format, layers: u32) -> vk::ImageSubresourceRange {
    let aspect = if format == DEPTH { vk::ImageAspectFlags::DEPTH } else { vk::ImageAspectFlags::COLOR };
    vk::ImageSubresourceRange {
        aspect_mask: aspect,
        base_mip_level: 0,
        level_count: 1,
        base_array_layer: 0,
        layer_count: layers,
    }
}

fn code(folder: &Path, name: &str) -> Result<Vec<u32>> {
    let path = folder.join(name);
    let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("four bytes"))).collect())
}

/// HLSL constant buffers store matrices by columns.
fn put(into: &mut [u8], at: usize, m: &Matrix) {
    for column in 0..4 {
        for row in 0..4 {
            let to = at + 4 * (4 * column + row);
            into[to..to + 4].copy_from_slice(&m[4 * row + column].to_le_bytes());
        }
    }
}

/// Fills a uniform block by member names.
fn fill(members: &[(String, usize)], object: &Object, camera: &Camera) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 1024];
    for (name, at) in members {
        let eye = &camera.eyes[0];
        match name.as_str() {
            "unity_ObjectToWorld" => put(&mut bytes, *at, &object.model),
            "unity_MatrixV" => put(&mut bytes, *at, &eye.view),
            "glstate_matrix_projection" => put(&mut bytes, *at, &eye.projection),
            "unity_StereoMatrixV" => {
                camera.eyes.iter().enumerate().for_each(|(i, e)| put(&mut bytes, *at + 64 * i, &e.view))
            }
            "unity_StereoMatrixP" => {
                camera.eyes.iter().enumerate().for_each(|(i, e)| put(&mut bytes, *at + 64 * i, &e.projection))
            }
            "_ScreenParams" => {
                for (i, v) in [camera.width as f32, camera.height as f32].iter().enumerate() {
                    bytes[at + 4 * i..at + 4 * i + 4].copy_from_slice(&v.to_le_bytes());
                }
            }
            "unity_StereoEyeIndex" => bytes[*at..at + 4].copy_from_slice(&camera.pass.to_le_bytes()),
            // Unused by the shaders.
            "unity_MatrixVP" | "unity_StereoMatrixVP" => {}
            other => match object.numbers.iter().find(|(n, _)| n == other) {
                Some((_, v)) => bytes[*at..at + 4].copy_from_slice(v),
                None => return Err(format!("no value for the shader's uniform {other}").into()),
            },
        }
    }
    Ok(bytes)
}

struct Pipeline {
    layout: vk::PipelineLayout,
    set: vk::DescriptorSetLayout,
    pipeline: vk::Pipeline,
    resources: Vec<spirv::Resource>,
}

fn kind(k: Kind) -> vk::DescriptorType {
    match k {
        Kind::Uniform => vk::DescriptorType::UNIFORM_BUFFER,
        Kind::Storage => vk::DescriptorType::STORAGE_BUFFER,
        Kind::Texture => vk::DescriptorType::SAMPLED_IMAGE,
        Kind::Sampler => vk::DescriptorType::SAMPLER,
    }
}

fn layouts(gpu: &Gpu, resources: &[spirv::Resource]) -> Result<(vk::DescriptorSetLayout, vk::PipelineLayout)> {
    let bindings: Vec<_> = resources
        .iter()
        .map(|r| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(r.binding)
                .descriptor_type(kind(r.kind))
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::ALL)
        })
        .collect();
    // SAFETY: see Gpu::open; the referenced data outlives the calls.
    unsafe {
        let d = &gpu.device;
        let set =
            d.create_descriptor_set_layout(&vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings), None)?;
        Ok((set, d.create_pipeline_layout(&vk::PipelineLayoutCreateInfo::default().set_layouts(&[set]), None)?))
    }
}

fn compute(gpu: &Gpu, shaders: &Path, kernel: &str) -> Result<Pipeline> {
    let module = code(shaders, &format!("{kernel}.comp.spv"))?;
    let resources = spirv::resources(&module);
    let (set, layout) = layouts(gpu, &resources)?;
    let entry = CString::new(kernel.trim_start_matches("Holocast"))?;
    // SAFETY: see Gpu::open; the referenced data outlives the calls.
    unsafe {
        let d = &gpu.device;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(d.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&module), None)?)
            .name(&entry);
        let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout);
        let pipeline = d.create_compute_pipelines(vk::PipelineCache::null(), &[info], None).map_err(|(_, e)| e)?[0];
        Ok(Pipeline { layout, set, pipeline, resources })
    }
}

fn pipeline(gpu: &Gpu, shaders: &Path, shader: &str, keywords: &[String], views: u32) -> Result<Pipeline> {
    let name = std::iter::once(shader.to_string()).chain(keywords.iter().cloned()).collect::<Vec<_>>().join(".");
    let mut vertex = code(shaders, &format!("{name}.vert.spv"))?;
    spirv::multiview(&mut vertex);
    let fragment = code(shaders, &format!("{name}.frag.spv"))?;
    // The fragment shader's binding numbers are shifted, so they do not collide with the vertex shader's.
    let resources: Vec<_> = spirv::resources(&vertex).into_iter().chain(spirv::resources(&fragment)).collect();
    let (set, layout) = layouts(gpu, &resources)?;
    // SAFETY: see Gpu::open; the referenced data outlives the calls.
    unsafe {
        let d = &gpu.device;
        let entries = [CString::new("Vertex")?, CString::new("Fragment")?];
        let modules = [
            d.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&vertex), None)?,
            d.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&fragment), None)?,
        ];
        let stages = [
            vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::VERTEX)
                .module(modules[0])
                .name(&entries[0]),
            vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::FRAGMENT)
                .module(modules[1])
                .name(&entries[1]),
        ];
        let input = vk::PipelineVertexInputStateCreateInfo::default();
        let assembly =
            vk::PipelineInputAssemblyStateCreateInfo::default().topology(vk::PrimitiveTopology::TRIANGLE_LIST);
        let viewport = vk::PipelineViewportStateCreateInfo::default().viewport_count(1).scissor_count(1);
        let raster =
            vk::PipelineRasterizationStateCreateInfo::default().cull_mode(vk::CullModeFlags::NONE).line_width(1.0);
        let samples =
            vk::PipelineMultisampleStateCreateInfo::default().rasterization_samples(vk::SampleCountFlags::TYPE_1);
        // Reversed depth, as Unity uses on Direct3D 11: 1 is nearest.
        let depth = vk::PipelineDepthStencilStateCreateInfo::default()
            .depth_test_enable(true)
            .depth_write_enable(true)
            .depth_compare_op(vk::CompareOp::GREATER_OR_EQUAL);
        let blends = [vk::PipelineColorBlendAttachmentState::default().color_write_mask(vk::ColorComponentFlags::RGBA)];
        let blend = vk::PipelineColorBlendStateCreateInfo::default().attachments(&blends);
        let dynamic = vk::PipelineDynamicStateCreateInfo::default()
            .dynamic_states(&[vk::DynamicState::VIEWPORT, vk::DynamicState::SCISSOR]);
        let mut rendering = vk::PipelineRenderingCreateInfo::default()
            .view_mask(views)
            .color_attachment_formats(&[COLOR])
            .depth_attachment_format(DEPTH);
        let info = vk::GraphicsPipelineCreateInfo::default()
            .stages(&stages)
            .vertex_input_state(&input)
            .input_assembly_state(&assembly)
            .viewport_state(&viewport)
            .rasterization_state(&raster)
            .multisample_state(&samples)
            .depth_stencil_state(&depth)
            .color_blend_state(&blend)
            .dynamic_state(&dynamic)
            .layout(layout)
            .push_next(&mut rendering);
        let pipeline = d.create_graphics_pipelines(vk::PipelineCache::null(), &[info], None).map_err(|(_, e)| e)?[0];
        Ok(Pipeline { layout, set, pipeline, resources })
    }
}

/// A shader and its keywords.
type Key = (String, Vec<String>);

/// Resources bound for a draw call.
struct Draw {
    key: Key,
    set: vk::DescriptorSet,
    indices: vk::Buffer,
    count: u32,
}

/// Uploads a texture for sampling.
fn upload(gpu: &Gpu, t: &scene::Texture) -> Result<vk::ImageView> {
    let usage = vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::TRANSFER_DST;
    let format = if t.pixel == 1 { vk::Format::R8_UNORM } else { vk::Format::R32G32_SFLOAT };
    let (image, view) = gpu.image(format, t.width, t.height, 1, usage)?;
    let staged = gpu.buffer(&t.bytes, 0, vk::BufferUsageFlags::TRANSFER_SRC)?;
    let copy = vk::BufferImageCopy::default()
        .image_subresource(vk::ImageSubresourceLayers {
            aspect_mask: vk::ImageAspectFlags::COLOR,
            mip_level: 0,
            base_array_layer: 0,
            layer_count: 1,
        })
        .image_extent(vk::Extent3D { width: t.width, height: t.height, depth: 1 });
    gpu.run(|c| {
        gpu.transition(c, image, format, 1, vk::ImageLayout::UNDEFINED, vk::ImageLayout::GENERAL);
        // SAFETY: see Gpu::open.
        unsafe { gpu.device.cmd_copy_buffer_to_image(c, staged.buffer, image, vk::ImageLayout::GENERAL, &[copy]) }
        gpu.transition(c, image, format, 1, vk::ImageLayout::GENERAL, vk::ImageLayout::GENERAL);
    })?;
    Ok(view)
}

/// Binds an object's resources.
fn bind(
    gpu: &Gpu, pipeline: &Pipeline, object: &Object, buffers: &[Buffer], camera: &Camera,
) -> Result<vk::DescriptorSet> {
    let sizes: Vec<_> =
        pipeline.resources.iter().map(|r| vk::DescriptorPoolSize { ty: kind(r.kind), descriptor_count: 1 }).collect();
    // SAFETY: see Gpu::open; the data referenced by the writes outlives them.
    unsafe {
        let pool = gpu
            .device
            .create_descriptor_pool(&vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(&sizes), None)?;
        let set = gpu.device.allocate_descriptor_sets(
            &vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&[pipeline.set]),
        )?[0];
        for r in &pipeline.resources {
            let write =
                vk::WriteDescriptorSet::default().dst_set(set).dst_binding(r.binding).descriptor_type(kind(r.kind));
            match r.kind {
                Kind::Texture => {
                    let texture = object.textures.iter().find(|t| t.name == r.name);
                    let view = upload(gpu, texture.ok_or_else(|| format!("no texture for the shader's {}", r.name))?)?;
                    let info =
                        [vk::DescriptorImageInfo::default().image_view(view).image_layout(vk::ImageLayout::GENERAL)];
                    gpu.device.update_descriptor_sets(&[write.image_info(&info)], &[]);
                }
                Kind::Sampler => {
                    // Same settings as the component's textures.
                    let info = vk::SamplerCreateInfo::default()
                        .mag_filter(vk::Filter::LINEAR)
                        .min_filter(vk::Filter::LINEAR)
                        .address_mode_u(vk::SamplerAddressMode::REPEAT)
                        .address_mode_v(vk::SamplerAddressMode::CLAMP_TO_EDGE);
                    let info = [vk::DescriptorImageInfo::default().sampler(gpu.device.create_sampler(&info, None)?)];
                    gpu.device.update_descriptor_sets(&[write.image_info(&info)], &[]);
                }
                Kind::Storage => {
                    let at = object.buffers.iter().position(|(n, _)| *n == r.name);
                    let storage = &buffers[at.ok_or_else(|| format!("no buffer for the shader's {}", r.name))?];
                    let info = [vk::DescriptorBufferInfo { buffer: storage.buffer, offset: 0, range: storage.size }];
                    gpu.device.update_descriptor_sets(&[write.buffer_info(&info)], &[]);
                }
                Kind::Uniform => {
                    let block =
                        gpu.buffer(&fill(&r.members, object, camera)?, 0, vk::BufferUsageFlags::UNIFORM_BUFFER)?;
                    let info = [vk::DescriptorBufferInfo { buffer: block.buffer, offset: 0, range: block.size }];
                    gpu.device.update_descriptor_sets(&[write.buffer_info(&info)], &[]);
                }
            }
        }
        Ok(set)
    }
}

/// Processor time of this process in milliseconds, in steps of ten.
fn processor_time() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    // User and system time, in hundredths of a second (proc_pid_stat(5)).
    let ticks = fields.skip(11).take(2).map(str::parse::<f64>).sum::<std::result::Result<f64, _>>()?;
    Ok(10.0 * ticks)
}

/// Mean processor time of a run in milliseconds.
fn time(count: usize, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?; // compiles
    let began = processor_time()?;
    for _ in 0..count {
        run()?;
    }
    Ok((processor_time()? - began) / count as f64)
}

fn draw(shaders: &Path, objects: &[Object], camera: &Camera, count: usize) -> Result<Vec<Vec<u8>>> {
    let gpu = Gpu::open()?;
    let eyes = camera.eyes.len() as u32;
    let (views, instances) = if camera.multiview { (0b11, 1) } else { (0, eyes) };
    let (width, height) = (camera.width, camera.height);
    let (color, color_view) = gpu.image(
        COLOR,
        width,
        height,
        eyes,
        vk::ImageUsageFlags::COLOR_ATTACHMENT | vk::ImageUsageFlags::TRANSFER_SRC,
    )?;
    let (depth, depth_view) = gpu.image(DEPTH, width, height, eyes, vk::ImageUsageFlags::DEPTH_STENCIL_ATTACHMENT)?;
    let mut pipelines: HashMap<Key, Pipeline> = HashMap::new();
    let (mut draws, mut dispatches) = (Vec::new(), Vec::new());
    for object in objects {
        let key = (object.shader.clone(), object.keywords.clone());
        if !pipelines.contains_key(&key) {
            let mode = if camera.multiview { "STEREO_MULTIVIEW_ON" } else { "STEREO_INSTANCING_ON" };
            let stereo = (eyes == 2).then(|| mode.to_string());
            let keywords: Vec<_> = stereo.into_iter().chain(object.keywords.iter().cloned()).collect();
            pipelines.insert(key.clone(), pipeline(&gpu, shaders, &object.shader, &keywords, views)?);
        }
        let storage = |(_, bytes): &(String, Vec<u8>)| gpu.buffer(bytes, 0, vk::BufferUsageFlags::STORAGE_BUFFER);
        let buffers = object.buffers.iter().map(storage).collect::<Result<Vec<_>>>()?;
        if let Some((shader, groups)) = &object.compute {
            let p = compute(&gpu, shaders, shader)?;
            dispatches.push((bind(&gpu, &p, object, &buffers, camera)?, p, *groups));
        }
        let set = bind(&gpu, &pipelines[&key], object, &buffers, camera)?;
        let indices = gpu.buffer(&object.indices, 0, vk::BufferUsageFlags::INDEX_BUFFER)?.buffer;
        draws.push(Draw { key, set, indices, count: (object.indices.len() / 4) as u32 });
    }
    let calculate = |c| {
        for (set, p, groups) in &dispatches {
            // SAFETY: see Gpu::open; the bound resources were created above.
            unsafe {
                let d = &gpu.device;
                d.cmd_bind_pipeline(c, vk::PipelineBindPoint::COMPUTE, p.pipeline);
                d.cmd_bind_descriptor_sets(c, vk::PipelineBindPoint::COMPUTE, p.layout, 0, &[*set], &[]);
                d.cmd_dispatch(c, *groups, 1, 1);
            }
        }
    };
    gpu.run(calculate)?;
    let bytes = u64::from(width * height * 4);
    let out = gpu.buffer(&[], bytes * u64::from(eyes), vk::BufferUsageFlags::TRANSFER_DST)?;
    let [r, g, b] = camera.background;
    let clear = vk::ClearValue { color: vk::ClearColorValue { float32: [r, g, b, 1.0] } };
    let colors = [vk::RenderingAttachmentInfo::default()
        .image_view(color_view)
        .image_layout(vk::ImageLayout::GENERAL)
        .load_op(vk::AttachmentLoadOp::CLEAR)
        .store_op(vk::AttachmentStoreOp::STORE)
        .clear_value(clear)];
    let depths = vk::RenderingAttachmentInfo::default()
        .image_view(depth_view)
        .image_layout(vk::ImageLayout::GENERAL)
        .load_op(vk::AttachmentLoadOp::CLEAR)
        .clear_value(vk::ClearValue { depth_stencil: vk::ClearDepthStencilValue { depth: 0.0, stencil: 0 } });
    let area = vk::Rect2D { offset: vk::Offset2D::default(), extent: vk::Extent2D { width, height } };
    let rendering = vk::RenderingInfo::default()
        .render_area(area)
        .layer_count(eyes)
        .view_mask(views)
        .color_attachments(&colors)
        .depth_attachment(&depths);
    let paint = |c| {
        gpu.transition(c, color, COLOR, eyes, vk::ImageLayout::UNDEFINED, vk::ImageLayout::GENERAL);
        gpu.transition(c, depth, DEPTH, eyes, vk::ImageLayout::UNDEFINED, vk::ImageLayout::GENERAL);
        // SAFETY: see Gpu::open; the bound resources were created above and live until the queue is
        // idle.
        unsafe {
            let d = &gpu.device;
            d.cmd_begin_rendering(c, &rendering);
            d.cmd_set_viewport(
                c,
                0,
                &[vk::Viewport {
                    x: 0.0,
                    y: 0.0,
                    width: width as f32,
                    height: height as f32,
                    min_depth: 0.0,
                    max_depth: 1.0,
                }],
            );
            d.cmd_set_scissor(c, 0, &[area]);
            for draw in &draws {
                let p = &pipelines[&draw.key];
                d.cmd_bind_pipeline(c, vk::PipelineBindPoint::GRAPHICS, p.pipeline);
                d.cmd_bind_descriptor_sets(c, vk::PipelineBindPoint::GRAPHICS, p.layout, 0, &[draw.set], &[]);
                d.cmd_bind_index_buffer(c, draw.indices, 0, vk::IndexType::UINT32);
                d.cmd_draw_indexed(c, draw.count, instances, 0, 0, 0);
            }
            d.cmd_end_rendering(c);
        }
    };
    if count > 0 {
        println!("{:.1} {:.1}", time(count, || gpu.run(paint))?, time(count, || gpu.run(calculate))?);
    }
    gpu.run(|c| {
        paint(c);
        gpu.transition(c, color, COLOR, eyes, vk::ImageLayout::GENERAL, vk::ImageLayout::TRANSFER_SRC_OPTIMAL);
        let copy = vk::BufferImageCopy::default()
            .image_subresource(vk::ImageSubresourceLayers {
                aspect_mask: vk::ImageAspectFlags::COLOR,
                mip_level: 0,
                base_array_layer: 0,
                layer_count: eyes,
            })
            .image_extent(vk::Extent3D { width, height, depth: 1 });
        // SAFETY: as above.
        unsafe {
            gpu.device.cmd_copy_image_to_buffer(c, color, vk::ImageLayout::TRANSFER_SRC_OPTIMAL, out.buffer, &[copy])
        }
    })?;
    // SAFETY: the memory is mapped in full and as long as the pictures.
    let all = unsafe {
        let at = gpu.device.map_memory(out.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())?;
        std::slice::from_raw_parts(at.cast::<u8>(), (bytes * u64::from(eyes)) as usize).to_vec()
    };
    Ok(all.chunks_exact(bytes as usize).map(<[u8]>::to_vec).collect())
}

fn run() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (Some([shaders, scene, camera, out]), 4..=5) = (arguments.first_chunk(), arguments.len()) else {
        return Err("usage: draw SHADERS SCENE CAMERA OUT [COUNT]".into());
    };
    let count = arguments.get(4).map_or(Ok(0), |n| n.to_string_lossy().parse())?;
    let camera = scene::camera(camera)?;
    for (i, picture) in draw(shaders, &scene::objects(scene)?, &camera, count)?.iter().enumerate() {
        let mut file = format!("P6\n{} {}\n255\n", camera.width, camera.height).into_bytes();
        file.extend(picture.chunks_exact(4).flat_map(|p| &p[..3]));
        std::fs::write(format!("{}.{i}.ppm", out.display()), file)?;
    }
    Ok(())
}

fn main() {
    if let Err(e) = run() {
        eprintln!("draw: {e}");
        std::process::exit(1);
    }
}
