// The part of utf8proc that the engine uses, for the browser build: the same answers from tables that
// web/tools/gen_unicode.cpp reads out of the native library at build time (unicode_data_web.cpp).
#pragma once

#include <stdint.h>

typedef int32_t utf8proc_int32_t;

typedef enum {
  UTF8PROC_CATEGORY_CN,
  UTF8PROC_CATEGORY_LU,
  UTF8PROC_CATEGORY_LL,
  UTF8PROC_CATEGORY_LT,
  UTF8PROC_CATEGORY_LM,
  UTF8PROC_CATEGORY_LO,
  UTF8PROC_CATEGORY_MN,
  UTF8PROC_CATEGORY_MC,
  UTF8PROC_CATEGORY_ME,
  UTF8PROC_CATEGORY_ND,
  UTF8PROC_CATEGORY_NL,
  UTF8PROC_CATEGORY_NO,
  UTF8PROC_CATEGORY_PC,
  UTF8PROC_CATEGORY_PD,
  UTF8PROC_CATEGORY_PS,
  UTF8PROC_CATEGORY_PE,
  UTF8PROC_CATEGORY_PI,
  UTF8PROC_CATEGORY_PF,
  UTF8PROC_CATEGORY_PO,
  UTF8PROC_CATEGORY_SM,
  UTF8PROC_CATEGORY_SC,
  UTF8PROC_CATEGORY_SK,
  UTF8PROC_CATEGORY_SO,
  UTF8PROC_CATEGORY_ZS,
  UTF8PROC_CATEGORY_ZL,
  UTF8PROC_CATEGORY_ZP,
  UTF8PROC_CATEGORY_CC,
  UTF8PROC_CATEGORY_CF,
  UTF8PROC_CATEGORY_CS,
  UTF8PROC_CATEGORY_CO
} utf8proc_category_t;

extern "C" {
utf8proc_category_t utf8proc_category(utf8proc_int32_t code);
const char* utf8proc_category_string(utf8proc_int32_t code);
utf8proc_int32_t utf8proc_tolower(utf8proc_int32_t code);
utf8proc_int32_t utf8proc_toupper(utf8proc_int32_t code);
utf8proc_int32_t utf8proc_totitle(utf8proc_int32_t code);
}
