//! Typed kernels from WGSL files do what the same kernels do by name.
#![forbid(unsafe_code)]
#![deny(missing_docs, unreachable_pub)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytemuck::Zeroable;
use half::f16;
use support::Sim;
use vyre::{Element, Engine, ImportOptions, Kernel, ReferenceBackend, Vec3, VyreBackend};

vyre::kernels!(mod life = "tests/kernels/life.wgsl");
vyre::kernels!(pub(crate) mod transform = "tests/kernels/transform.wgsl");
vyre::kernels! {
    /// Things that fall.
    mod particles = "tests/kernels/particles.wgsl";
}

fn engines() -> [Engine; 2] {
    let backends: [Arc<dyn VyreBackend>; 2] = [Arc::new(Sim::new("sim", 2, 1 << 30)), Arc::new(ReferenceBackend)];
    backends.map(|backend| {
        let builder = Engine::builder().without_default_backends().without_disk();
        builder.with_backend(backend, 1).open().unwrap()
    })
}

fn by_name(engine: &Engine, source: &str, entry: &str) -> Kernel {
    let options = ImportOptions { entry: Some(entry.to_owned()), ..ImportOptions::default() };
    engine.kernel(&vyre::import_wgsl(source, &options).unwrap()).unwrap()
}

#[test]
fn life_goes_on_as_by_name() {
    const RULE: life::Rule = life::Rule { birth: 1 << 3, survive: 1 << 2 | 1 << 3 };
    for engine in engines() {
        let cells: Vec<u32> = (0..12 * 10).map(|i: u32| i.wrapping_mul(2_654_435_761) >> 31).collect();
        let typed = life::step_with(&engine, life::StepConstants { width: 12, height: 10 }).unwrap();
        let named = by_name(&engine, include_str!("kernels/life.wgsl"), "step");
        let named = named.set("width", 12u32).unwrap().set("height", 10u32).unwrap();
        let (mut now, mut then) = (engine.array(&cells).unwrap(), engine.array(&cells).unwrap());
        let mut next = engine.zeros_like(&now).unwrap();
        for generation in 0..6 {
            typed.launch(life::Step { now: &now, next: &mut next, rule: RULE }).unwrap();
            std::mem::swap(&mut now, &mut next);
            let mut after = engine.zeros_like(&then).unwrap();
            named.bind("now", &then).bind("next", &mut after).value("rule", &RULE).run().unwrap();
            then = after;
            assert_eq!(now.to_vec().unwrap(), then.to_vec().unwrap(), "generation {generation}");
        }
        assert_ne!(now.to_vec().unwrap(), cells);
    }
}

#[test]
fn a_typed_call_takes_what_calls_by_name_take() {
    let [engine, _] = engines();
    let step = life::step(&engine).unwrap();
    assert_eq!(life::StepConstants::default(), life::StepConstants { width: 8, height: 8 });
    let now = engine.array(&[1u32; 64]).unwrap();
    let mut next = engine.array(&[7u32; 64]).unwrap();
    let rule = life::Rule { birth: 0, survive: 1 << 8 };
    let call = step.call(life::Step { now: &now, next: &mut next, rule }).label("a generation").grid([1, 1, 1]);
    call.on("sim").timeout(Duration::from_secs(60)).launch().unwrap().wait().unwrap();
    assert_eq!(next.to_vec().unwrap(), [1; 64]);
    let unknown = step.call(life::Step { now: &now, next: &mut next, rule }).on("nowhere").launch();
    assert!(unknown.unwrap_err().message().contains("nowhere"));
    // Another length is told when it is launched, as it is by name.
    let mut short = engine.zeros::<u32>(3).unwrap();
    step.clone().launch(life::Step { now: &now, next: &mut short, rule }).unwrap().wait().unwrap();
    assert_eq!(short.to_vec().unwrap(), [1; 3]);
}

#[test]
fn graphs_take_the_same_kernel() {
    let [engine, _] = engines();
    let step = life::step(&engine).unwrap();
    let rule = life::Rule { birth: 1 << 3, survive: 1 << 2 | 1 << 3 };
    let cells: Vec<u32> = (0..64).map(|i| u32::from(i % 3 == 0)).collect();
    let mut recorder = engine.record();
    let (now, next) = (recorder.place::<u32>("now", 64), recorder.place::<u32>("next", 64));
    let place = recorder.place::<life::Rule>("rule", 1);
    recorder.launch(step.kernel()).bind("now", now).bind("next", next).bind("rule", place).add().unwrap();
    let graph = recorder.finish().unwrap();
    let now = engine.array(&cells).unwrap();
    let (mut one, mut other) = (engine.zeros_like(&now).unwrap(), engine.zeros_like(&now).unwrap());
    for birth in [1 << 3, 1 << 2, 1 << 3] {
        let rule = life::Rule { birth, ..rule };
        graph.replay().bind("now", &now).bind("next", &mut one).value("rule", &rule).launch().unwrap();
        step.clone().launch(life::Step { now: &now, next: &mut other, rule }).unwrap();
        assert_eq!(one.to_vec().unwrap(), other.to_vec().unwrap());
    }
}

#[test]
fn members_are_where_wgsl_has_them() {
    use std::mem::offset_of;
    use transform::Camera;
    assert_eq!([offset_of!(Camera, eye), offset_of!(Camera, zoom), offset_of!(Camera, view)], [0, 12, 16]);
    assert_eq!([offset_of!(Camera, turn), offset_of!(Camera, offset), offset_of!(Camera, up)], [80, 128, 144]);
    assert_eq!(size_of::<Camera>(), 160);
    use particles::{Body, Particle};
    assert_eq!([offset_of!(Body, position), offset_of!(Body, mass), offset_of!(Body, velocity)], [0, 12, 16]);
    assert_eq!([offset_of!(Particle, body), offset_of!(Particle, tags), offset_of!(Particle, half_life)], [16, 48, 60]);
    assert_eq!((size_of::<Body>(), size_of::<Particle>()), (32, 64));
    // What lies between members is zero, is not compared and is not shown.
    let body = Body::new([1.0, 2.0, 3.0], 4.0, [5.0, 6.0, 7.0]);
    let mut bytes = bytemuck::bytes_of(&body).to_vec();
    assert_eq!(bytes[28..], [0; 4]);
    bytes[30] = 9;
    assert_eq!(bytemuck::pod_read_unaligned::<Body>(&bytes), body);
    assert_eq!(format!("{body:?}"), "Body { position: [1.0, 2.0, 3.0], mass: 4.0, velocity: [5.0, 6.0, 7.0] }");
    assert_eq!(Body::default(), Body::zeroed());
}

#[test]
fn uniforms_with_gaps_arrive_as_they_were_given() {
    for engine in engines() {
        let view: [[f32; 4]; 4] = std::array::from_fn(|column| std::array::from_fn(|row| (column * 4 + row) as f32));
        let turn = [[0.0f32, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]].map(Vec3::from);
        let camera = transform::Camera::new([1.0, 2.0, 3.0], 2.0, view, turn, [0.25, 0.5], [100.0, 200.0, 300.0]);
        let weights = [[1000.0f32; 4], [2000.0; 4], [3000.0; 4]];
        let bias = Vec3::new(0.5f32, 0.25, 0.125);
        let points: Vec<[f32; 3]> = (0..7).map(|i| [i as f32, 10.0 - i as f32, 3.0 * i as f32]).collect();
        let at = engine.array(&points.iter().copied().map(Vec3::from).collect::<Vec<_>>()).unwrap();
        let mut seen = engine.zeros::<[f32; 4]>(7).unwrap();
        let mut turned = engine.zeros::<Vec3<f32>>(7).unwrap();
        let bindings = transform::Project { camera, points: &at, seen: &mut seen, turned: &mut turned, weights, bias };
        transform::project(&engine).unwrap().launch(bindings).unwrap();
        let (mut expected_seen, mut expected_turned) = (Vec::new(), Vec::new());
        for (i, point) in points.iter().enumerate() {
            let p: [f32; 3] = std::array::from_fn(|axis| (point[axis] - camera.eye[axis]) * 2.0);
            let offset = [0.25, 0.5, 0.0, 0.0];
            expected_seen.push(std::array::from_fn::<f32, 4, _>(|row| {
                let product = p[0] * view[0][row] + p[1] * view[1][row] + p[2] * view[2][row] + view[3][row];
                product + weights[i % 3][row] + offset[row]
            }));
            // The matrix moves each component to the next.
            let moved = [p[2], p[0], p[1]];
            expected_turned.push(std::array::from_fn::<f32, 3, _>(|row| moved[row] + camera.up[row] + bias[row]));
        }
        assert_eq!(seen.to_vec().unwrap(), expected_seen);
        assert_eq!(turned.to_vec().unwrap(), expected_turned);
        let named = by_name(&engine, include_str!("kernels/transform.wgsl"), "project");
        let (mut seen_too, mut turned_too) = (engine.zeros_like(&seen).unwrap(), engine.zeros_like(&turned).unwrap());
        let call = named.bind("points", &at).bind("seen", &mut seen_too).bind("turned", &mut turned_too);
        call.value("camera", &camera).value("weights", &weights).value("bias", &bias).run().unwrap();
        assert_eq!(seen_too.to_vec().unwrap(), expected_seen);
        assert_eq!(turned_too.to_vec().unwrap(), expected_turned);
    }
}

#[test]
fn values_of_another_type_or_length_are_refused_by_name() {
    let [engine, _] = engines();
    let project = by_name(&engine, include_str!("kernels/transform.wgsl"), "project");
    let refused = |call: vyre::Call<'_>| call.launch().unwrap_err().code();
    let wrong = vyre::codes::engine::WRONG_ELEMENT.id;
    assert_eq!(refused(project.value("weights", &[[0u32; 4]; 3])), wrong);
    assert_eq!(refused(project.value("bias", &[0.0f32; 3])), wrong);
    let (points, threes) = (engine.zeros::<[f32; 4]>(2).unwrap(), engine.zeros::<[f32; 3]>(2).unwrap());
    assert_eq!(refused(project.bind("points", &threes)), wrong);
    assert_eq!(refused(project.bind("points", &engine.zeros::<[u32; 4]>(2).unwrap())), wrong);
    let mut seen = engine.zeros::<[f32; 4]>(2).unwrap();
    let mut turned = engine.zeros::<Vec3<f32>>(2).unwrap();
    let call = project.bind("points", &points).bind("seen", &mut seen).bind("turned", &mut turned);
    let call = call.value("camera", &transform::Camera::default()).value("bias", &[0.0f32; 4]);
    assert_eq!(refused(call.value("weights", &[[0.0f32; 4]; 2])), vyre::codes::ir::LAUNCH_INPUT_SIZE.id);
}

/// The first particles of the tests.
fn some_particles() -> Vec<particles::Particle> {
    let particle = |i: u32| {
        let fall = -(i as f32);
        let body = particles::Body::new([i as f32, 1.0, 0.5], 1.5 + i as f32, [1.0, fall * 4.0, 0.25]);
        particles::Particle::new(1, body, [i, 0, 7], f16::from_f32(3.0))
    };
    (0..6).map(particle).collect()
}

fn bytes_of<T: Element>(array: &vyre::Array<T>) -> Vec<u8> {
    vyre::to_bytes(&array.to_vec().unwrap()).to_vec()
}

#[test]
fn arrays_of_structs_two_kernels_and_constants() {
    for engine in engines() {
        let source = include_str!("kernels/particles.wgsl");
        let types = engine.array(&[1i32, 2, 3, 4, 5, 6]).unwrap();
        for bounce in [false, true] {
            let constants = particles::MoveAllConstants { bounce, dt: 1.0, ..Default::default() };
            assert_eq!((constants.floor_at, constants.drag), (-3, f16::from_f32(0.25)));
            let typed = particles::move_all_with(&engine, constants).unwrap();
            let named = by_name(&engine, source, "move_all");
            let named = named.set("bounce", bounce).unwrap().set("dt", 1.0f32).unwrap();
            let mut bodies = engine.array(&some_particles()).unwrap();
            let mut deaths = engine.array(&[0u32]).unwrap();
            let (mut bodies_too, mut deaths_too) = (bodies.clone(), deaths.clone());
            let bindings = particles::MoveAll { particles: &mut bodies, deaths: &mut deaths, type_of: &types };
            typed.launch(bindings).unwrap();
            let call = named.bind("particles", &mut bodies_too).bind("deaths", &mut deaths_too);
            call.bind("type_of", &types).run().unwrap();
            assert_eq!(bytes_of(&bodies), bytes_of(&bodies_too));
            assert_eq!(deaths.to_vec().unwrap(), deaths_too.to_vec().unwrap());
            let after = bodies.to_vec().unwrap();
            // y is 1 - 3 i after the time step, and the floor is at -3.
            let fell: Vec<u32> = (0..6).filter(|&i| 1 - 3 * (i as i32) < -3).collect();
            assert_eq!(deaths.to_vec().unwrap()[0], if bounce { 0 } else { fell.len() as u32 });
            for (i, particle) in after.iter().enumerate() {
                let down = fell.contains(&(i as u32));
                assert_eq!(particle.alive, u32::from(!down || bounce));
                assert_eq!(particle.body.position, [i as f32 + 0.75, 1.0 - 3.0 * i as f32, 0.6875]);
                assert_eq!(particle.body.velocity[1], 4.0 * i as f32 * if down && bounce { 1.0 } else { -1.0 });
                assert_eq!(particle.half_life, f16::from_f32(1.5));
                let mut tags = [i as u32, 0, 7];
                tags[i % 3] += i as u32 + 1;
                assert_eq!(particle.tags, tags);
            }
            let mut masses = engine.zeros::<f16>(6).unwrap();
            let mut log = engine.buffer(4 * 7);
            let bindings = particles::Weigh { particles: &bodies, log: &mut log, masses: &mut masses };
            particles::weigh(&engine).unwrap().launch(bindings).unwrap();
            assert_eq!(masses.to_vec().unwrap(), [1.5f32, 2.5, 3.5, 4.5, 5.5, 6.5].map(f16::from_f32));
            let log: Vec<u32> = vyre::from_bytes(&log.to_vec().unwrap());
            let (length, mut entries) = (log[0] as usize, log[1..].to_vec());
            entries.truncate(length);
            entries.sort_unstable();
            assert_eq!(entries, if bounce { Vec::new() } else { fell });
        }
    }
}
