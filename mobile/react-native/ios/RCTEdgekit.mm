#import <EdgekitSpec/EdgekitSpec.h>

#if __has_include(<EdgekitReactNative/EdgekitReactNative-Swift.h>)
#import <EdgekitReactNative/EdgekitReactNative-Swift.h>
#else
#import "EdgekitReactNative-Swift.h"
#endif

/// The interface that React Native's codegen wrote, which Swift cannot implement: passes each call to EdgekitModule.swift.
@interface RCTEdgekit : NSObject <NativeEdgekitSpec>
@end

@implementation RCTEdgekit {
  EdgekitModule *_module;
}

+ (NSString *)moduleName {
  return @"Edgekit";
}

- (instancetype)init {
  if (self = [super init]) {
    _module = [EdgekitModule new];
  }
  return self;
}

- (std::shared_ptr<facebook::react::TurboModule>)getTurboModule:(const facebook::react::ObjCTurboModule::InitParams &)params {
  return std::make_shared<facebook::react::NativeEdgekitSpecJSI>(params);
}

- (void)load:(NSString *)source
      target:(NSString *_Nullable)target
    selfTest:(BOOL)selfTest
     resolve:(RCTPromiseResolveBlock)resolve
      reject:(RCTPromiseRejectBlock)reject {
  [_module load:source target:target selfTest:selfTest resolve:resolve reject:reject];
}

- (void)run:(double)runner
      image:(NSString *)image
     pixels:(NSArray *)pixels
      query:(NSString *_Nullable)query
     vector:(NSArray *)vector
          k:(double)k
       size:(NSArray *)size
    resolve:(RCTPromiseResolveBlock)resolve
     reject:(RCTPromiseRejectBlock)reject {
  [_module run:runner image:image pixels:pixels query:query vector:vector k:k size:size resolve:resolve reject:reject];
}

- (void)selfTest:(double)runner resolve:(RCTPromiseResolveBlock)resolve reject:(RCTPromiseRejectBlock)reject {
  [_module selfTest:runner resolve:resolve reject:reject];
}

- (void)dispose:(double)runner resolve:(RCTPromiseResolveBlock)resolve reject:(RCTPromiseRejectBlock)reject {
  [_module dispose:runner resolve:resolve reject:reject];
}

@end
