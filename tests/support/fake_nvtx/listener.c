// A profiler as NVTX loads one by NVTX_INJECTION64_PATH: writes every range of every domain to the
// file that TANDEM_TEST_RANGES names, one line each, indented by depth.
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nvtxDomainRegistration_st {
  char name[64];
};
static struct nvtxDomainRegistration_st domains[8];
static int domain_count;
static __thread int depth;
static FILE* file;

static nvtxDomainHandle_t create_domain(const char* name) {
  struct nvtxDomainRegistration_st* domain = &domains[domain_count++];
  strncpy(domain->name, name, sizeof domain->name - 1);
  return domain;
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  const long long payload =
      event->payloadType == NVTX_PAYLOAD_TYPE_INT64 ? (long long)event->payload.llValue : -1;
  fprintf(file, "%*s%s: %s (%lld)\n", depth, "", domain->name, event->message.ascii, payload);
  return depth++;
}

static int pop(nvtxDomainHandle_t domain) {
  (void)domain;
  fflush(file);
  return --depth;
}

static void name_thread(uint32_t thread, const char* name) {
  (void)thread;
  fprintf(file, "thread %s\n", name);
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const NvtxExportTableCallbacks* callbacks =
      (const NvtxExportTableCallbacks*)get_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned size = 0;
  file = fopen(getenv("TANDEM_TEST_RANGES"), "w");
  if (file == NULL || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size)) {
    return 0;
  }
  *table[NVTX_CBID_CORE_NameOsThreadA] = (NvtxFunctionPointer)name_thread;
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) {
    return 0;
  }
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create_domain;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}
