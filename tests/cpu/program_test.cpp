// How a plan becomes nodes: what is fused, which rows run, and where values lie.
#include "cpu/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/isa.h"
#include "cpu/run.h"
#include "random_model.h"

namespace doppler::cpu {
namespace {

Program compiled(const RandomModel& m, bool fuse, int block = 16) {
  static const PackedWeights nothing;
  return compile(m.config, m.plan, m.weights,
                 {.kernels = &kPortableKernels, .packed = &nothing, .block = block, .fuse = fuse});
}

const Node* node_of(const Program& program, const Plan& plan, const std::string& step) {
  for (const Node& node : program.nodes) {
    for (const Op& op : node.ops) {
      if (op.step >= 0 && plan.steps[static_cast<size_t>(op.step)].name == step) return &node;
    }
  }
  return nullptr;
}

class ProgramTest : public ::testing::TestWithParam<ModelConfig (*)()> {};

TEST_P(ProgramTest, LiveValuesNeverShareMemory) {
  for (const DType type : {DType::kF32, DType::kQ4_K}) {
    const RandomModel m(GetParam()(), type);
    for (const bool fuse : {false, true}) {
      for (const int block : {1, 7, 64}) {
        const Program program = compiled(m, fuse, block);
        EXPECT_THAT(overlapping_buffers(program, block), ::testing::IsEmpty());
        size_t separate = 0;
        for (const Buffer& buffer : program.buffers) {
          if (buffer.first >= 0 && !buffer.outside && !buffer.local)
            separate += buffer.row_bytes * static_cast<size_t>(block);
        }
        EXPECT_LT(program.arena_bytes, separate + 64 * program.buffers.size());
      }
    }
  }
}

TEST_P(ProgramTest, NothingIsReadBeforeItIsWritten) {
  const RandomModel m(GetParam()(), DType::kQ4_K);
  for (const bool fuse : {false, true}) {
    const Program program = compiled(m, fuse);
    std::vector<bool> written(program.buffers.size(), false);
    for (const Node& node : program.nodes) {
      if (node.kind == NodeKind::kRows) {
        for (const Op& op : node.ops) {
          for (const int s : op.in)
            EXPECT_TRUE(written[static_cast<size_t>(s)]) << program.buffers[static_cast<size_t>(s)].name;
          if (op.out >= 0) written[static_cast<size_t>(op.out)] = true;
        }
        continue;
      }
      for (const int s : buffers_read(node)) EXPECT_TRUE(written[static_cast<size_t>(s)]);
      for (const int s : buffers_written(node)) written[static_cast<size_t>(s)] = true;
    }
    EXPECT_TRUE(written[static_cast<size_t>(program.output)]);
  }
}

TEST_P(ProgramTest, UnfusedEveryStepIsFinishedOnceInOrder) {
  const RandomModel m(GetParam()(), DType::kQ4_K);
  const Program program = compiled(m, false);
  int next = 0;
  for (const Node& node : program.nodes) {
    EXPECT_EQ(node.kind == NodeKind::kMatMul ? node.parts.size() : node.ops.size(), 1u);
    if (node.finished_step >= 0) {
      EXPECT_EQ(node.finished_step, next++);
    }
  }
  EXPECT_EQ(next, static_cast<int>(m.plan.steps.size()));
  for (const Buffer& buffer : program.buffers) EXPECT_FALSE(buffer.local);
}

TEST_P(ProgramTest, EveryThreadBeginsAProductWithWeightsOfItsOwn) {
  const Kernels& kernels = choose_kernels();
  if (!kernels.formats[kFormatQ4_K].packing) GTEST_SKIP() << "these kernels read weights as they lie";
  const RandomModel m(GetParam()(), DType::kQ4_K);
  ThreadPool pool(2);
  const PackedWeights packed(kernels, matrices_of(m.plan, m.weights), pool);
  const Program program =
      compile(m.config, m.plan, m.weights, {.kernels = &kernels, .packed = &packed, .block = 1, .fuse = true});
  for (const Node& node : program.nodes) {
    const std::byte *first = first_weights(node, 0, 2), *second = first_weights(node, 1, 2);
    if (node.kind != NodeKind::kMatMul || !node.parts[0].a.packed) {
      EXPECT_EQ(first, nullptr);
      continue;
    }
    ASSERT_NE(second, nullptr);  // with one piece, the last thread has it
    const auto lies_in = [&](const std::byte* p) {
      return std::any_of(node.parts.begin(), node.parts.end(), [&](const MatMulPart& part) {
        return p >= part.a.data && p < part.a.data + part.a.strides(part.a.rows) * part.a.stride &&
               static_cast<size_t>(p - part.a.data) % part.a.stride == 0;
      });
    };
    EXPECT_TRUE(lies_in(second));
    if (!first) continue;
    EXPECT_EQ(first, node.parts[0].a.data);
    EXPECT_NE(first, second);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ProgramTest,
                         ::testing::Values(doppler::testing::plain_config, doppler::testing::quirky_config,
                                           doppler::testing::expert_config, doppler::testing::odd_config));

TEST(Program, FusesWhatTheTableSays) {
  const RandomModel m(doppler::testing::quirky_config(), DType::kQ4_K);
  const Program program = compiled(m, true);
  const std::string text = describe(program, m.plan);

  const Node* qkv = node_of(program, m.plan, "layer1.q_proj");
  ASSERT_TRUE(qkv);
  EXPECT_EQ(qkv, node_of(program, m.plan, "layer1.v_proj")) << text;
  EXPECT_EQ(qkv->parts.size(), 3u);

  const Node* glu = node_of(program, m.plan, "layer1.gate_proj");
  ASSERT_TRUE(glu);
  EXPECT_EQ(glu, node_of(program, m.plan, "layer1.glu")) << text;
  ASSERT_EQ(glu->parts.size(), 1u);
  EXPECT_TRUE(glu->parts[0].glu);
  EXPECT_GE(glu->parts[0].out_quantised, 0);
  EXPECT_EQ(glu->parts[0].out, -1) << "nobody reads the f32";

  EXPECT_EQ(node_of(program, m.plan, "layer1.post_attn_norm"), node_of(program, m.plan, "layer1.pre_ffn_norm"));
  EXPECT_EQ(node_of(program, m.plan, "layer1.out"), node_of(program, m.plan, "layer2.attn_norm"));
  EXPECT_GT(node_of(program, m.plan, "raw_logits")->parts[0].softcap, 0);
}

TEST(Program, AValueThatSomebodyElseReadsIsKept) {
  // The plan's glu inputs, read by one more step: gate and up must then exist as values of their own.
  const RandomModel m(doppler::testing::plain_config(), DType::kF32);
  Program program = compiled(m, false);
  const Plan& plan = m.plan;
  const Step* gate = plan.find("layer0.gate_proj");
  Node extra;
  extra.kind = NodeKind::kRows;
  Op op;
  op.kind = OpKind::kAdd;
  op.in = {gate->output, gate->output};
  op.out = gate->output;
  extra.ops.push_back(op);
  program.nodes.push_back(std::move(extra));
  fuse_glu(program);
  EXPECT_NE(node_of(program, plan, "layer0.gate_proj"), node_of(program, plan, "layer0.glu"));
  EXPECT_EQ(node_of(program, plan, "layer1.gate_proj"), node_of(program, plan, "layer1.glu"));
}

TEST(Program, BehindTheLastCacheOnlyRowsWithLogitsRun) {
  const RandomModel m(doppler::testing::quirky_config(), DType::kF32);
  const Program program = compiled(m, true);
  EXPECT_TRUE(node_of(program, m.plan, "layer3.attn_out")->logit_rows);
  EXPECT_TRUE(node_of(program, m.plan, "layer3.gate_proj")->logit_rows);
  EXPECT_TRUE(node_of(program, m.plan, "layer3.q_proj")->logit_rows);
  EXPECT_FALSE(node_of(program, m.plan, "layer3.k_proj")->logit_rows);
  EXPECT_FALSE(node_of(program, m.plan, "layer2.gate_proj")->logit_rows);
  // With a tap every row of every layer is wanted.
  const Program single = compiled(m, false);
  EXPECT_FALSE(node_of(single, m.plan, "layer3.gate_proj")->logit_rows);
  EXPECT_TRUE(node_of(single, m.plan, "final_norm")->logit_rows);
}

}  // namespace
}  // namespace doppler::cpu
