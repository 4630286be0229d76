// Prints the meshes of a glTF file as three.js reads them, one JSON object, for exportcheck_test.go.
//
// node read.mjs FILE
import {readFile} from 'node:fs/promises';
import {Color, Vector3} from '../../client-web/node_modules/three/build/three.module.js';
import {GLTFLoader} from '../../client-web/node_modules/three/examples/jsm/loaders/GLTFLoader.js';

const file = new Uint8Array(await readFile(process.argv[2]));
const {scene} = await new GLTFLoader().parseAsync(file.buffer, '');
const meshes = [];
scene.traverse((o) => {
	if (o.isMesh) meshes.push(summary(o));
});
console.log(JSON.stringify(meshes));

function summary({name, material, geometry}) {
	const {position, normal, color} = geometry.attributes;
	const mean = new Vector3(), rgb = [0, 0, 0];
	for (let i = 0; i < position.count; i++) {
		mean.addScaledVector(new Vector3().fromBufferAttribute(position, i), 1 / position.count);
		const c = new Color().fromBufferAttribute(color, i).convertLinearToSRGB();
		[c.r, c.g, c.b].forEach((v, k) => (rgb[k] += v / position.count));
	}
	const index = geometry.index, [a, b, c, n] = Array.from({length: 4}, () => new Vector3());
	let facing = 0;
	for (let i = 0; i < index.count; i += 3) {
		[a, b, c].forEach((v, k) => v.fromBufferAttribute(position, index.getX(i + k)));
		n.fromBufferAttribute(normal, index.getX(i));
		if (b.sub(a).cross(c.sub(a)).dot(n) > 0) facing++;
	}
	return {
		name, points: position.count, triangles: index.count / 3, mean: mean.toArray(), color: rgb,
		facing: (facing * 3) / index.count, unlit: material.type === 'MeshBasicMaterial' && material.vertexColors,
	};
}
