// Which k experts have the highest scores: ties go to the lower number. Scores lie in workgroup memory first.
const kMostExperts = 256u;
const kMostChosen = 32u;
var<workgroup> expert_scores: array<f32, kMostExperts>;
var<workgroup> chosen_experts: array<u32, kMostChosen>;

// Before the scores are put, or at the same time: scores that are no numbers choose somebody, too.
fn prepare_choice(thread: u32) {
  if (thread < kMostChosen) {
    chosen_experts[thread] = 0u;
  }
}
// A barrier before, since scores must be there, and one after. `size`: threads of the workgroup.
fn choose_experts(thread: u32, size: u32, experts: u32, k: u32) {
  for (var e = thread; e < experts; e += size) {
    let own = expert_scores[e];
    var rank = 0u;
    for (var other = 0u; other < experts; other++) {
      let score = expert_scores[other];
      rank += select(0u, 1u, score > own || (score == own && other < e));
    }
    if (rank < k) {
      chosen_experts[rank] = e;
    }
  }
}
// The softmax over the chosen ones' scores, of one of them.
fn chosen_weight(place: u32, k: u32) -> f32 {
  let highest = expert_scores[chosen_experts[0]];
  var sum = 0.0;
  for (var i = 0u; i < k; i++) {
    sum += exp(max(expert_scores[chosen_experts[i]] - highest, -80.0));
  }
  return exp(max(expert_scores[chosen_experts[place]] - highest, -80.0)) / sum;
}
