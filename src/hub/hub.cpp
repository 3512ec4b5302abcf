#include "hub/hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/progress.h"
#include "convert/convert.h"
#include "import/recognise.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

void say(const PullOptions& options, const std::string& line) {
  if (options.say) options.say(line);
}

std::string without_query(const std::string& address) {
  const Url url = parse_url(address);
  const bool usual = url.port == (url.scheme == "https" ? 443 : 80);
  return fmt::format("{}://{}{}{}", url.scheme, url.host, usual ? "" : fmt::format(":{}", url.port),
                     url.path.substr(0, url.path.find('?')));
}

// The hub's answers, as sentences. X-Error-Code tells apart what one status means: a repository that is private, gated
// or not there at all is 401 to a stranger (huggingface_hub/utils/_http.py, hf_raise_for_status).
[[noreturn]] void refuse(const HttpAnswer& answer, const ModelName& name, const PullOptions& options) {
  const std::string code = answer.header("x-error-code"), got = fmt::format("HTTP {}", answer.status);
  const std::string page = options.settings.endpoint + "/" + name.repo;
  const bool token = !options.settings.token.empty();
  if (code == "GatedRepo") {
    fail({.code = ErrorCode::kFile,
          .what = "the model is gated: its owner wants to know who uses it",
          .where = name.id(),
          .got = got,
          .todo = fmt::format("Ask for access at {}, then {}", page,
                              token ? "try again with the same token" : "set HF_TOKEN to a token of yours")});
  }
  if (code == "RevisionNotFound") {
    fail({.code = ErrorCode::kFile,
          .what = "the model has no such revision",
          .where = name.id(),
          .got = got,
          .todo = "Name a branch, a tag or a commit after the @, or leave it out"});
  }
  if (code == "EntryNotFound") {
    fail({.code = ErrorCode::kFile, .what = "the model has no such file", .where = name.id(), .got = got});
  }
  if (code == "RepoNotFound" || answer.status == 401 || answer.status == 404) {
    fail({.code = ErrorCode::kFile,
          .what = token ? "there is no such model, or your token may not see it"
                        : "there is no such model, or it is private",
          .where = name.id(),
          .got = got,
          .todo =
              token ? "Check the name, and the token's rights" : "Check the name; for a private model set HF_TOKEN"});
  }
  if (answer.status == 403) {
    fail({.code = ErrorCode::kFile,
          .what = "the hub refuses access",
          .where = name.id(),
          .got = got + (answer.header("x-error-message").empty() ? "" : ", " + answer.header("x-error-message")),
          .todo = "Check the rights of the token in HF_TOKEN"});
  }
  fail({.code = ErrorCode::kFile,
        .what = answer.status == 429 ? "the hub wants fewer requests" : "the hub gives no useful answer",
        .where = name.id(),
        .got = answer.status == 0 ? answer.fault : got,
        .todo = answer.unreachable ? "Check the connection; --offline uses what is already here"
                                   : "Try again later; --offline uses what is already here"});
}

// GET with the patience of a download; the last answer is returned, whatever it is.
HttpAnswer get_patiently(HttpClient& client, const HttpRequest& request, const PullOptions& options) {
  double pause = options.download.first_pause;
  for (int attempt = 1;; ++attempt) {
    HttpAnswer answer = client.get(request, options.cancelled);
    const double asked = retry_after(answer), wait = std::max(asked, pause);
    if (answer.ok() || answer.stopped || answer.unreachable || !is_passing_fault(answer) ||
        attempt >= options.download.attempts || asked > options.download.longest_pause) {
      return answer;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(wait));
    pause *= 2;
  }
}

[[noreturn]] void bad_listing(const ModelName& name, const std::string& got) {
  fail({.code = ErrorCode::kFormat,
        .what = "the hub's list of files cannot be what it says",
        .where = name.id(),
        .got = got,
        .todo = "Check HF_ENDPOINT"});
}

// GET /api/models/REPO/revision/REVISION?blobs=true: "sha" is the commit, "siblings" the files, each with "rfilename",
// "size", "blobId" (git's SHA-1) and, in LFS, "lfs": {"sha256", "size"} (huggingface_hub/hf_api.py, model_info with
// files_metadata).
void read_listing(const Json& listing, const ModelName& name, std::string& commit, std::vector<HubFile>& files) {
  const std::string where = name.id();
  commit = require_string(listing, "sha", where);
  if (!is_commit(commit)) bad_listing(name, commit);
  for (const Json& item : require_array(listing, "siblings", where)) {
    HubFile file{.name = require_string(item, "rfilename", where), .size = 0, .hash = ""};
    if (!is_safe_path(file.name)) bad_listing(name, file.name);
    const Json* lfs = find(item, "lfs");
    const int64_t size = int_or(lfs ? *lfs : item, "size", -1, where);
    file.hash = lfs ? require_string(*lfs, "sha256", where) : string_or(item, "blobId", "", where);
    const bool hash = (file.hash.size() == 40 || file.hash.size() == 64) &&
                      file.hash.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!hash || size < 0) bad_listing(name, fmt::format("{} with size {} and hash '{}'", file.name, size, file.hash));
    file.size = static_cast<uint64_t>(size);
    files.push_back(std::move(file));
  }
}

PullPlan plan_from_cache(const ModelName& name, const PullOptions& options) {
  const RepoCache cache(options.settings, name.repo);
  PullPlan plan{.name = name, .commit = cache.commit_of(name.revision), .from_cache = true};
  const std::vector<HubFile> files = plan.commit.empty() ? std::vector<HubFile>() : cache.files(plan.commit);
  if (files.empty()) {
    fail({.code = ErrorCode::kFile,
          .what = "this model is not on this machine, and nothing may be fetched",
          .where = name.id(),
          .todo = "doppler list shows what is here; leave out --offline and HF_HUB_OFFLINE to fetch it"});
  }
  plan.choice = choose_files(files, name);
  for (const HubFile& file : plan.choice.files) plan.bytes += file.size;
  return plan;
}

uint64_t size_or_nothing(const fs::path& path) {
  std::error_code ec;
  const uint64_t size = fs::file_size(path, ec);
  return ec ? 0 : size;
}

// Where the bytes of a file of the plan lie, or will.
fs::path blob_path(const PullPlan& plan, const HubFile& file, const HubSettings& settings) {
  return plan.commit.empty() ? web_folder(settings, plan.name.text) / "blobs" / file.hash
                             : RepoCache(settings, plan.name.repo).blob(file.hash);
}

void count_missing(PullPlan& plan, const HubSettings& settings) {
  for (const HubFile& file : plan.choice.files) {
    plan.bytes += file.size;
    const fs::path blob = blob_path(plan, file, settings);
    if (file_exists(blob) && size_or_nothing(blob) == file.size) continue;
    fs::path incomplete = blob;
    incomplete += ".incomplete";
    plan.missing += file.size - std::min(file.size, size_or_nothing(incomplete));
  }
}

PullPlan plan_from_hub(const ModelName& name, const PullOptions& options) {
  const HubSettings& settings = options.settings;
  // A file of a commit never changes: what is here needs no question.
  const fs::path known = RepoCache(settings, name.repo).snapshot(name.revision) / name.wanted;
  const bool here = is_commit(name.revision) && name.wanted.ends_with(".gguf") && file_exists(known);
  if (settings.offline || here) return plan_from_cache(name, options);
  HttpClient client(options.limits);
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", settings.endpoint, name.repo,
                                      url_encode(name.revision, false));
  const HttpAnswer answer = get_patiently(client, {.url = url, .token = settings.token}, options);
  if (!answer.ok()) {
    const RepoCache cache(settings, name.repo);
    const bool cached = answer.status == 0 && !cache.files(cache.commit_of(name.revision)).empty();
    if (!cached) refuse(answer, name, options);
    say(options, fmt::format("the hub cannot be reached ({}); using what is already here", answer.fault));
    return plan_from_cache(name, options);
  }
  PullPlan plan{.name = name};
  std::vector<HubFile> files;
  read_listing(parse_json(answer.body, url), name, plan.commit, files);
  plan.choice = choose_files(files, name);
  count_missing(plan, settings);
  return plan;
}

// A file from anywhere: one byte of it tells its length and version.
PullPlan plan_from_web(const ModelName& name, const PullOptions& options) {
  const HubSettings& settings = options.settings;
  const fs::path folder = web_folder(settings, name.text);
  const std::string path = parse_url(name.text).path;
  const std::string file = path.substr(0, path.find('?')).substr(path.substr(0, path.find('?')).rfind('/') + 1);
  if (!file.ends_with(".gguf") || !is_safe_path(file)) {
    fail({.code = ErrorCode::kUsage,
          .what = "an address must be that of a GGUF file",
          .where = name.text,
          .expected = "https://…/NAME.gguf",
          .todo = "Name a model of the hub as hf:org/repo"});
  }
  PullPlan plan{.name = name};
  plan.choice.files = {{.name = file, .size = 0, .hash = ""}};
  HubFile& only = plan.choice.files.front();
  std::error_code ec;
  const fs::path known = fs::read_symlink(folder / file, ec).filename();
  const auto here = [&] {
    only = {.name = file, .size = size_or_nothing(folder / file), .hash = known.string()};
    plan.bytes = only.size;
    plan.from_cache = true;
    return plan;
  };
  if (settings.offline && file_exists(folder / file)) return here();
  if (settings.offline) {
    fail({.code = ErrorCode::kFile,
          .what = "this file is not on this machine, and nothing may be fetched",
          .where = name.text,
          .todo = "Leave out --offline and HF_HUB_OFFLINE to fetch it"});
  }
  HttpClient client(options.limits);
  HttpRequest request{.url = name.text, .range = "0-0"};
  request.on_body = [](const HttpAnswer&, std::string_view) { return false; };  // its head is all that is wanted
  const HttpAnswer answer = get_patiently(client, request, options);
  if (answer.status == 0 && file_exists(folder / file)) {
    say(options, fmt::format("the server cannot be reached ({}); using what is already here", answer.fault));
    return here();
  }
  if (answer.status != 200 && answer.status != 206) {
    fail({.code = ErrorCode::kFile,
          .what = "the server does not give this file",
          .where = without_query(name.text),
          .got = answer.status ? fmt::format("HTTP {}", answer.status) : answer.fault,
          .todo = "Check the address"});
  }
  const std::string range = answer.header("content-range"), length = answer.header("content-length");
  const std::string size = answer.status == 206 ? range.substr(range.find('/') + 1) : length;
  if (size.empty() || size.find_first_not_of("0123456789") != std::string::npos || size.size() > 18) {
    fail({.code = ErrorCode::kFile,
          .what = "the server does not say how long the file is",
          .where = without_query(name.text),
          .todo = "Fetch it with another program and name the file"});
  }
  only.size = std::stoull(size);
  plan.etag = answer.header("etag");
  // The blob's name: another version, another name.
  const std::string version = plan.etag + "\n" + answer.header("last-modified") + "\n" + size;
  only.hash = "web-" + sha256_hex(std::as_bytes(std::span(version.data(), version.size()))).substr(0, 32);
  count_missing(plan, settings);
  return plan;
}

void check_room(const PullPlan& plan, const fs::path& folder, uint64_t bytes) {
  std::error_code ec;
  fs::path existing = folder;
  while (!fs::exists(existing, ec) && existing != existing.parent_path()) existing = existing.parent_path();
  const fs::space_info space = fs::space(existing, ec);
  if (ec || space.available >= bytes) return;
  fail({.code = ErrorCode::kFile,
        .what = "the disk has too little room",
        .where = folder.string(),
        .expected = with_prefix(static_cast<double>(bytes)) + "B for " + plan.name.id(),
        .got = with_prefix(static_cast<double>(space.available)) + "B",
        .todo = "doppler du shows what the caches hold, doppler rm removes models; HF_HUB_CACHE names another disk"});
}

fs::path artefact_of(const PullPlan& plan, const PullOptions& options) {
  return artefact_folder(options.settings, plan.name.repo, plan.commit,
                         plan.choice.recipe.empty() ? "default" : plan.choice.recipe);
}

// Converts a checkpoint of the hub, once for a commit and a recipe.
fs::path converted(const PullPlan& plan, const fs::path& checkpoint, const PullOptions& options) {
  const fs::path target = artefact_of(plan, options);
  if (file_exists(target / "manifest.json")) return target;
  const FileLock lock(
      target.parent_path() / (target.filename().string() + ".lock"),
      [&] { say(options, "another program is converting this model; waiting for it"); }, options.cancelled);
  if (file_exists(target / "manifest.json")) return target;
  ConvertOptions convert_options;
  if (!plan.choice.recipe.empty()) convert_options.recipe = recipe_named(plan.choice.recipe);
  convert_options.id = plan.name.repo.substr(plan.name.repo.find('/') + 1);
  convert_options.cancelled = options.cancelled;
  convert_options.progress = [&](uint64_t done, uint64_t all) {
    if (options.progress) options.progress("convert", "weights", done, all);
  };
  convert(checkpoint, target, convert_options);
  return target;
}

}  // namespace

PullPlan plan_pull(const ModelName& name, const PullOptions& options) {
  if (name.kind == ModelName::Kind::kHub) return plan_from_hub(name, options);
  if (name.kind == ModelName::Kind::kWeb) return plan_from_web(name, options);
  fail({.code = ErrorCode::kUsage,
        .what = "this is no name of a model on the hub, nor an address",
        .where = name.text,
        .expected = "hf:org/repo[@revision][:file or quantisation] or https://…"});
}

fs::path fetch(const PullPlan& plan, const PullOptions& options) {
  const HubSettings& settings = options.settings;
  const bool web = plan.commit.empty();
  const RepoCache cache(settings, plan.name.repo);
  const fs::path folder = web ? web_folder(settings, plan.name.text) : cache.snapshot(plan.commit);
  const fs::path result = plan.choice.kind == Choice::Kind::kGguf ? folder / plan.choice.files.front().name : folder;
  if (plan.from_cache) return result;
  check_room(plan, web ? folder : cache.folder(), plan.missing);
  uint64_t arrived = 0;
  DownloadOptions download_options = options.download;
  download_options.cancelled = options.cancelled;
  download_options.progress = [&](uint64_t bytes) {
    arrived += bytes;
    if (options.progress) options.progress("fetch", "B", std::min(arrived, plan.missing), plan.missing);
  };
  HttpClient client(options.limits);
  for (const HubFile& file : plan.choice.files) {
    const fs::path blob = blob_path(plan, file, settings);
    if (!file_exists(blob) || size_or_nothing(blob) != file.size) {
      std::error_code ec;
      fs::create_directories(blob.parent_path(), ec);
      const fs::path lock_path = web ? folder / (file.hash + ".lock") : cache.lock(file.hash);
      const FileLock lock(
          lock_path, [&] { say(options, "another program is fetching " + file.name + "; waiting"); },
          options.cancelled);
      if (!file_exists(blob) || size_or_nothing(blob) != file.size) {
        DownloadSource source{.url = plan.name.text, .token = "", .size = file.size, .hash = "", .etag = plan.etag};
        source.name = web ? without_query(plan.name.text) : plan.name.repo + "/" + file.name;
        if (!web) {
          source.url = fmt::format("{}/{}/resolve/{}/{}", settings.endpoint, plan.name.repo, plan.commit,
                                   url_encode(file.name, true));
          source.token = settings.token;
          source.hash = file.hash;
        }
        download(client, source, blob, download_options);
      }
    }
    if (web)
      replace_link(fs::path("blobs") / file.hash, folder / file.name);
    else
      cache.link(plan.commit, file);
    if (!web && plan.choice.kind == Choice::Kind::kCheckpoint && file.name == "config.json")
      check_before_weights(folder);
  }
  if (web)
    write_file_whole(folder / "address", without_query(plan.name.text));
  else
    cache.remember(plan.name.revision, plan.commit);  // last: a revision is known when all of it is here
  return result;
}

std::string fetch_head(const PullPlan& plan, uint64_t bytes, const PullOptions& options) {
  const HubFile& file = plan.choice.files.front();
  const uint64_t wanted = std::min(bytes, file.size);
  const fs::path blob = blob_path(plan, file, options.settings);
  std::string head;
  if (file_exists(blob)) {
    const MappedFile mapped(blob);
    head.assign(reinterpret_cast<const char*>(mapped.bytes().data()),
                std::min<uint64_t>(wanted, mapped.bytes().size()));
    return head;
  }
  HttpRequest request{.url = plan.name.text, .range = fmt::format("0-{}", wanted - 1)};
  if (!plan.commit.empty()) {
    request.url = fmt::format("{}/{}/resolve/{}/{}", options.settings.endpoint, plan.name.repo, plan.commit,
                              url_encode(file.name, true));
    request.token = options.settings.token;
  }
  request.on_body = [&](const HttpAnswer&, std::string_view part) {
    head += part.substr(0, wanted - head.size());
    return head.size() < wanted;
  };
  HttpClient client(options.limits);
  for (int attempt = 0; attempt < 3 && head.size() < wanted; ++attempt) {
    head.clear();
    client.get(request, options.cancelled);
  }
  return head;
}

fs::path obtain(const PullPlan& plan, ModelUse use, const PullOptions& options) {
  if (use == ModelUse::kSource || plan.choice.kind != Choice::Kind::kCheckpoint) return recognise(fetch(plan, options));
  const fs::path done = artefact_of(plan, options);
  if (file_exists(done / "manifest.json")) return done;  // whether or not its checkpoint is still here
  return converted(plan, recognise(fetch(plan, options)), options);
}

fs::path resolve_model(const std::string& text, ModelUse use, const PullOptions& options) {
  const ModelName name = parse_model_name(text, options.settings.endpoint);
  if (name.kind == ModelName::Kind::kPath) return recognise(text);
  return obtain(plan_pull(name, options), use, options);
}

}  // namespace doppler
