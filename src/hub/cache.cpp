#include "hub/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/files.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// As Hugging Face's programs read a switch: 1, ON, YES or TRUE.
bool is_on(std::string value) {
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::toupper(c); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

std::string with_dashes(std::string repo) {
  for (size_t at = 0; (at = repo.find('/', at)) != std::string::npos; at += 2) repo.replace(at, 1, "--");
  return repo;
}

void make_folders(const fs::path& folder) {
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (ec) {
    fail({.code = ErrorCode::kFile,
          .what = "the cache's folder cannot be created",
          .where = folder.string(),
          .got = ec.message(),
          .todo = "Check the permissions, or name another folder with HF_HUB_CACHE and DOPPLER_CACHE"});
  }
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code ec;
  for (fs::directory_iterator item(folder, ec), end; !ec && item != end; item.increment(ec))
    out.push_back(item->path());
  std::sort(out.begin(), out.end());
  return out;
}

uint64_t folder_bytes(const fs::path& folder) {
  uint64_t sum = 0;
  std::error_code ec;
  for (fs::recursive_directory_iterator item(folder, ec), end; !ec && item != end; item.increment(ec)) {
    std::error_code unreadable;
    if (item->is_regular_file(unreadable) && !item->is_symlink(unreadable)) sum += item->file_size(unreadable);
  }
  return sum;
}

std::map<std::string, std::string> refs_of(const fs::path& folder) {  // revision → commit
  std::map<std::string, std::string> out;
  std::error_code ec;
  const fs::path refs = folder / "refs";
  for (fs::recursive_directory_iterator item(refs, ec), end; !ec && item != end; item.increment(ec)) {
    std::error_code unreadable;
    if (!item->is_regular_file(unreadable)) continue;
    const std::string commit = trimmed(read_text_file(item->path()));
    if (is_commit(commit)) out[item->path().lexically_relative(refs).string()] = commit;
  }
  return out;
}

// Blobs that a snapshot's links lead to.
std::set<std::string> blobs_of(const fs::path& snapshot) {
  std::set<std::string> out;
  std::error_code ec;
  for (fs::recursive_directory_iterator item(snapshot, ec), end; !ec && item != end; item.increment(ec)) {
    std::error_code unreadable;
    if (item->is_symlink(unreadable)) out.insert(fs::read_symlink(item->path(), unreadable).filename().string());
  }
  return out;
}

void describe_hub(const fs::path& folder, CachedModel& model) {
  model.folders.push_back(folder);
  std::map<std::string, std::vector<std::string>> names;  // commit → revisions
  for (const auto& [revision, commit] : refs_of(folder)) names[commit].push_back(revision);
  std::set<std::string> contents;
  for (const fs::path& snapshot : entries(folder / "snapshots")) {
    const std::string commit = snapshot.filename().string(), brief = commit.substr(0, 8);
    if (names[commit].empty()) model.revisions.push_back(brief);
    for (const std::string& revision : names[commit])
      model.revisions.push_back(fmt::format("{} ({})", revision, brief));
    std::error_code ec;
    for (fs::recursive_directory_iterator item(snapshot, ec), end; !ec && item != end; item.increment(ec)) {
      const std::string file = item->path().lexically_relative(snapshot).string();
      if (file.ends_with(".gguf")) contents.insert(file);
      if (file.ends_with(".safetensors")) contents.insert("safetensors");
    }
  }
  model.contents.insert(model.contents.end(), contents.begin(), contents.end());
  for (const fs::path& blob : entries(folder / "blobs")) {
    std::error_code ec;
    const uint64_t size = fs::is_regular_file(blob, ec) ? fs::file_size(blob, ec) : 0;
    (blob.extension() == ".incomplete" ? model.unfinished : model.blobs) += ec ? 0 : size;
  }
}

// Gives the folder a name nobody looks for, then removes it: at no moment does half of it look like a model.
void remove_folder(const fs::path& folder) {
  const fs::path away = folder.parent_path() / fmt::format(".{}.removed-{}", folder.filename().string(), random_name());
  std::error_code ec;
  fs::rename(folder, away, ec);
  if (ec == std::errc::no_such_file_or_directory) return;
  if (!ec) fs::remove_all(away, ec);
  if (ec) {
    fail({.code = ErrorCode::kFile,
          .what = "the folder cannot be removed",
          .where = folder.string(),
          .got = ec.message(),
          .todo = "Check the permissions"});
  }
}

[[noreturn]] void nothing_cached(const ModelName& name) {
  fail({.code = ErrorCode::kUsage,
        .what = "nothing of this name is in the cache",
        .where = name.id(),
        .todo = "doppler list shows what is there"});
}

}  // namespace

bool is_commit(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

HubSettings settings_from_environment() {
  HubSettings settings;
  const std::string home = environment("HF_HOME");
  const fs::path hf_home = home.empty() ? user_caches() / "huggingface" : expand_home(home);
  settings.hub = hf_home / "hub";
  for (const char* name : {"HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE"}) {  // the former is an older name of the latter
    if (const std::string value = environment(name); !value.empty()) settings.hub = expand_home(value);
  }
  settings.own = own_cache();
  settings.endpoint = environment("HF_ENDPOINT");
  if (settings.endpoint.empty()) settings.endpoint = "https://huggingface.co";
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  settings.token = trimmed(environment("HF_TOKEN"));
  const std::string token_path = environment("HF_TOKEN_PATH");
  const fs::path file = token_path.empty() ? hf_home / "token" : expand_home(token_path);
  std::error_code ec;
  if (settings.token.empty() && fs::is_regular_file(file, ec)) settings.token = trimmed(read_text_file(file));
  settings.offline = is_on(environment("HF_HUB_OFFLINE"));
  return settings;
}

FileLock::FileLock(const fs::path& path, const std::function<void()>& waiting, const std::function<bool()>& cancelled) {
  make_folders(path.parent_path());
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    fail({.code = ErrorCode::kFile,
          .what = "the lock cannot be opened",
          .where = path.string(),
          .got = std::strerror(errno),
          .todo = "Check the permissions"});
  }
  for (bool told = false; ::flock(fd_, LOCK_EX | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK && errno != EINTR) break;  // a file system without locks: go on alone
    if (!told && waiting) waiting();
    told = true;
    if (cancelled && cancelled()) {
      ::close(fd_);
      fail({.code = ErrorCode::kFile, .what = "interrupted while waiting for another program", .where = path.string()});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

FileLock::~FileLock() { ::close(fd_); }

void replace_link(const fs::path& target, const fs::path& link) {
  make_folders(link.parent_path());
  std::error_code ec;
  if (fs::read_symlink(link, ec) == target && !ec) return;
  const fs::path temporary = link.parent_path() / fmt::format(".{}.{}.link", link.filename().string(), random_name());
  fs::create_symlink(target, temporary, ec);
  if (!ec) fs::rename(temporary, link, ec);
  if (ec) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    fail({.code = ErrorCode::kFile,
          .what = "the link cannot be created",
          .where = link.string(),
          .got = ec.message(),
          .todo = "The cache must lie on a file system with symbolic links"});
  }
}

RepoCache::RepoCache(const HubSettings& settings, const std::string& repo)
    : folder_(settings.hub / ("models--" + with_dashes(repo))),
      locks_(settings.hub / ".locks" / ("models--" + with_dashes(repo))) {}

std::string RepoCache::commit_of(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  const fs::path ref = folder_ / "refs" / revision;
  std::error_code ec;
  if (!fs::is_regular_file(ref, ec)) return "";
  const std::string commit = trimmed(read_text_file(ref));
  return is_commit(commit) ? commit : "";
}

void RepoCache::remember(const std::string& revision, const std::string& commit) const {
  if (is_commit(revision) || commit_of(revision) == commit) return;
  const fs::path ref = folder_ / "refs" / revision;
  make_folders(ref.parent_path());
  write_file_whole(ref, commit);
}

void RepoCache::link(const std::string& commit, const HubFile& file) const {
  const fs::path link = snapshot(commit) / file.name;
  fs::path up = "../..";
  for (const char c : file.name) {
    if (c == '/') up /= "..";
  }
  replace_link(up / "blobs" / file.hash, link);
}

std::vector<HubFile> RepoCache::files(const std::string& commit) const {
  std::vector<HubFile> out;
  const fs::path root = snapshot(commit);
  std::error_code ec;
  for (fs::recursive_directory_iterator item(root, ec), end; !ec && item != end; item.increment(ec)) {
    std::error_code broken;
    if (!fs::is_regular_file(item->path(), broken)) continue;  // a link whose blob is gone
    const std::string hash = item->is_symlink(broken) ? fs::read_symlink(item->path(), broken).filename().string() : "";
    out.push_back({item->path().lexically_relative(root).string(), fs::file_size(item->path(), broken), hash});
  }
  std::sort(out.begin(), out.end(), [](const HubFile& a, const HubFile& b) { return a.name < b.name; });
  return out;
}

fs::path artefact_folder(const HubSettings& settings, const std::string& repo, const std::string& commit,
                         const std::string& recipe) {
  return settings.own / "artefacts" / with_dashes(repo) / commit / recipe;
}

fs::path web_folder(const HubSettings& settings, const std::string& address) {
  const std::string key = sha256_hex(std::as_bytes(std::span(address.data(), address.size())));
  return settings.own / "web" / key.substr(0, 32);
}

std::vector<CachedModel> cached_models(const HubSettings& settings) {
  std::map<std::string, CachedModel> models;
  const auto of = [&](std::string dashed) -> CachedModel& {
    if (const size_t at = dashed.find("--"); at != std::string::npos) dashed.replace(at, 2, "/");
    CachedModel& model = models["hf:" + dashed];
    model.name = "hf:" + dashed;
    return model;
  };
  constexpr std::string_view kModels = "models--";
  for (const fs::path& folder : entries(settings.hub)) {
    const std::string name = folder.filename().string();
    if (name.starts_with(kModels)) describe_hub(folder, of(name.substr(kModels.size())));
  }
  for (const fs::path& folder : entries(settings.own / "artefacts")) {
    if (folder.filename().string().starts_with('.')) continue;
    CachedModel& model = of(folder.filename().string());
    model.folders.push_back(folder);
    model.artefacts = folder_bytes(folder);
    for (const fs::path& commit : entries(folder)) {
      for (const fs::path& recipe : entries(commit)) {
        if (file_exists(recipe / "manifest.json") && recipe.filename().string()[0] != '.')
          model.contents.push_back("artefact " + recipe.filename().string());
      }
    }
  }
  for (const fs::path& folder : entries(settings.own / "web")) {
    if (!file_exists(folder / "address")) continue;
    CachedModel model;
    model.name = trimmed(read_text_file(folder / "address"));
    model.folders = {folder};
    for (const fs::path& entry : entries(folder)) {
      std::error_code ec;
      if (fs::is_symlink(entry, ec)) model.contents.push_back(entry.filename().string());
    }
    for (const fs::path& blob : entries(folder / "blobs")) {
      std::error_code ec;
      (blob.extension() == ".incomplete" ? model.unfinished : model.blobs) += fs::file_size(blob, ec);
    }
    models[model.name + folder.filename().string()] = model;
  }
  std::vector<CachedModel> out;
  for (auto& [name, model] : models) out.push_back(std::move(model));
  return out;
}

uint64_t remove_cached(const HubSettings& settings, const ModelName& name, bool revision_named, bool dry_run) {
  if (name.kind == ModelName::Kind::kWeb) {
    const fs::path folder = web_folder(settings, name.text);
    if (!file_exists(folder)) nothing_cached(name);
    const uint64_t bytes = folder_bytes(folder);
    if (!dry_run) remove_folder(folder);
    return bytes;
  }
  const RepoCache cache(settings, name.repo);
  const fs::path artefacts = settings.own / "artefacts" / with_dashes(name.repo);
  if (!file_exists(cache.folder()) && !file_exists(artefacts)) nothing_cached(name);
  if (!revision_named && name.wanted.empty()) {
    const uint64_t bytes = folder_bytes(cache.folder()) + folder_bytes(artefacts);
    if (!dry_run) {
      remove_folder(cache.folder());
      remove_folder(artefacts);
    }
    return bytes;
  }
  const std::string commit = cache.commit_of(name.revision);
  const fs::path snapshot = cache.snapshot(commit);
  if (commit.empty() || !file_exists(snapshot)) nothing_cached(name);
  const std::set<std::string> mine = blobs_of(snapshot);
  std::set<std::string> gone = mine, kept;
  uint64_t bytes = 0;
  if (!name.wanted.empty()) {
    const std::vector<HubFile> chosen = choose_files(cache.files(commit), name).files;
    gone.clear();
    for (const HubFile& file : chosen) gone.insert(file.hash);
    for (const std::string& blob : mine) {
      if (!gone.contains(blob)) kept.insert(blob);
    }
    for (const HubFile& file : chosen) {
      std::error_code ec;
      if (!dry_run) fs::remove(snapshot / file.name, ec);
    }
  } else {
    bytes += folder_bytes(artefacts / commit);
    if (!dry_run) {
      for (const auto& [revision, of] : refs_of(cache.folder())) {
        std::error_code ec;
        if (of == commit) fs::remove(cache.folder() / "refs" / revision, ec);
      }
      remove_folder(artefacts / commit);
      remove_folder(snapshot);
    }
  }
  for (const fs::path& other : entries(cache.folder() / "snapshots")) {
    if (other != snapshot && !other.filename().string().starts_with('.')) kept.merge(blobs_of(other));
  }
  for (const std::string& blob : gone) {
    if (kept.contains(blob)) continue;
    std::error_code ec;
    const uint64_t size = fs::file_size(cache.blob(blob), ec);
    bytes += ec ? 0 : size;
    if (!dry_run) fs::remove(cache.blob(blob), ec);
  }
  return bytes;
}

}  // namespace doppler
