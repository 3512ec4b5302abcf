enable f16;

// Four weights as the tile holds them: half the memory, and half the traffic.
alias Held = vec4<f16>;
