// Four weights as the tile holds them.
alias Held = vec4<f32>;
