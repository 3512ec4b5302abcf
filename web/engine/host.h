// What the page gives to the engine: functions imported from the WebAssembly module "host" (web/lib/host_*.js).
//
// Handles are numbers of the host's own tables. Sizes and offsets in bytes are doubles, which hold any of them exactly.
// Functions marked "waits" suspend the whole stack (JSPI) until the host's promise resolves; the others return at once.
// A host function that fails throws a JavaScript error, which ends the call into the module.
#pragma once

#include <cstdint>

#define DOPPLER_HOST(name) __attribute__((import_module("host"), import_name(name)))

extern "C" {

// Files of the model that is being loaded, by name. Sizes below zero: there is no such file.
DOPPLER_HOST("file_size") double host_file_size(const char* name, uint32_t length);
DOPPLER_HOST("file_read")
void host_file_read(const char* name, uint32_t length, double offset, void* out, uint32_t bytes);

// Text. An expression stays compiled until it is freed; a text is held between open and close.
DOPPLER_HOST("regex_compile")
int32_t host_regex_compile(const char* pattern, uint32_t length);  // below 0: malformed
DOPPLER_HOST("regex_free") void host_regex_free(int32_t regex);
DOPPLER_HOST("text_open") int32_t host_text_open(const char* text, uint32_t length);
DOPPLER_HOST("text_close") void host_text_close(int32_t text);
// The first match from byte `from` on, as bytes found[0] … found[1]; 0 where there is none.
DOPPLER_HOST("regex_find") int32_t host_regex_find(int32_t regex, int32_t text, uint32_t from, uint32_t* found);
// The normal form of `count` code points: code points again, fetched with normalize_take. form: 0 NFC, 1 NFD, 2 NFKC, 3
// NFKD.
DOPPLER_HOST("normalize") uint32_t host_normalize(const char32_t* codes, uint32_t count, uint32_t form);
DOPPLER_HOST("normalize_take") void host_normalize_take(char32_t* codes);

// A piece of the answer; 0 asks to stop.
DOPPLER_HOST("piece") int32_t host_piece(const char* text, uint32_t length, uint32_t tokens);

// What a tapped step put out: [tokens, values / tokens], the first row at this position.
DOPPLER_HOST("tap")
void host_tap(const char* step, uint32_t length, const float* data, uint32_t values, uint32_t tokens,
              uint32_t position);

// WebGPU. Opens an adapter and a device and answers with its description as JSON, fetched with gpu_take. Waits.
DOPPLER_HOST("gpu_open") uint32_t host_gpu_open(uint32_t plain);
DOPPLER_HOST("gpu_take") void host_gpu_take(char* out);
DOPPLER_HOST("gpu_close") void host_gpu_close();

// use: 0 storage, 1 uniform, 2 readback.
DOPPLER_HOST("gpu_buffer")
int32_t host_gpu_buffer(const char* label, uint32_t length, double bytes, uint32_t use);
DOPPLER_HOST("gpu_buffer_free") void host_gpu_buffer_free(int32_t buffer);
DOPPLER_HOST("gpu_write") void host_gpu_write(int32_t buffer, double offset, const void* data, uint32_t bytes);
DOPPLER_HOST("gpu_read") void host_gpu_read(int32_t buffer, double offset, void* out, uint32_t bytes);  // waits
DOPPLER_HOST("gpu_begin_read") void host_gpu_begin_read(int32_t buffer);
DOPPLER_HOST("gpu_end_read") void host_gpu_end_read(int32_t buffer, void* out, uint32_t bytes);  // waits
DOPPLER_HOST("gpu_wait") void host_gpu_wait();                                                   // waits

// `about` is JSON: label, constants, bindings, and the files that the lines of the source come from. Waits.
DOPPLER_HOST("gpu_kernel")
int32_t host_gpu_kernel(const char* about, uint32_t length, const char* wgsl, uint32_t wgsl_length);
DOPPLER_HOST("gpu_kernel_free") void host_gpu_kernel_free(int32_t kernel);

struct HostBinding {
  uint32_t binding;
  int32_t buffer;
  double offset, size;
};
DOPPLER_HOST("gpu_bind_group")
int32_t host_gpu_bind_group(const char* label, uint32_t length, int32_t kernel, const HostBinding* list,
                            uint32_t count);
DOPPLER_HOST("gpu_bind_group_free") void host_gpu_bind_group_free(int32_t group);

// A whole recording in one call. Offsets and sizes are counted in words of 4 bytes.
struct HostCommand {
  uint32_t kind;  // 0 dispatch: a kernel, b bind group, grid; 1 copy: a from, b to; 2 clear: b
  int32_t a, b;
  uint32_t x, y, z;  // the grid; or: offset of the source, offset of the target, size
};
DOPPLER_HOST("gpu_submit")
void host_gpu_submit(const char* label, uint32_t length, const HostCommand* commands, uint32_t count, uint32_t times);
// The same with clocks: begin and end in nanoseconds of every dispatch (`each`) or of every pass. Returns how many
// pairs were written to `out`, which has room for `most`. Waits.
DOPPLER_HOST("gpu_time")
uint32_t host_gpu_time(const HostCommand* commands, uint32_t count, uint32_t times, uint32_t each, double* out,
                       uint32_t most);
DOPPLER_HOST("gpu_lose") void host_gpu_lose(const char* why, uint32_t length);

}  // extern "C"
