// c = a · b for square matrices. An invocation computes one column of so many rows; how many is the tuner's choice, because more rows use
// what was loaded from b more often, and fewer leave more invocations to spread.
override n: u32 = 256u;
override rows: u32 = 1u;

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;

fn vyre_domain() -> vec3<u32> {
    return vec3<u32>(n, (n + rows - 1u) / rows, 1u);
}

@compute @workgroup_size(64)
fn matmul(@builtin(global_invocation_id) id: vec3<u32>) {
    let column = id.x;
    let row = id.y * rows;
    if column >= n || row >= n {
        return;
    }
    var sum0 = 0.0;
    var sum1 = 0.0;
    var sum2 = 0.0;
    var sum3 = 0.0;
    for (var k = 0u; k < n; k++) {
        let right = b[k * n + column];
        sum0 += a[row * n + k] * right;
        if rows > 1u {
            sum1 += a[(row + 1u) * n + k] * right;
        }
        if rows > 2u {
            sum2 += a[(row + 2u) * n + k] * right;
            sum3 += a[(row + 3u) * n + k] * right;
        }
    }
    c[row * n + column] = sum0;
    if rows > 1u && row + 1u < n {
        c[(row + 1u) * n + column] = sum1;
    }
    if rows > 2u && row + 2u < n {
        c[(row + 2u) * n + column] = sum2;
    }
    if rows > 2u && row + 3u < n {
        c[(row + 3u) * n + column] = sum3;
    }
}
